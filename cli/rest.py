"""The one call that the CLI makes over REST: `POST /jobs` at the gateway."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from cli.found_data import where_to_look
from cli.problems import REFUSED, UNAVAILABLE, USAGE, CommandError
from cli.settings import Settings
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobResponse

_OPENER_WITHOUT_PROXY = urllib.request.ProxyHandler({})


def post_job(options: Settings, document: bytes, headers: Mapping[str, str]) -> SubmitJobResponse:
    """Submits a document. Raises a CommandError with what the gateway said."""
    base = _base(options)
    headers = {"Content-Type": "application/json", **headers}
    if options.token:
        headers["Authorization"] = f"Bearer {options.token}"
    request = urllib.request.Request(f"{base}/jobs", document, headers, method="POST")  # noqa: S310  # http(s) by _base
    try:
        with _opener(options, base).open(request, timeout=options.timeout) as answer:
            answered = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error.code, error.read()) from error
    except (OSError, ValueError) as error:
        raise CommandError(
            f"the gateway at {base} cannot be reached: {error}",
            UNAVAILABLE,
            "UNAVAILABLE",
            where_to_look("say where it is: --gateway HOST:PORT or FETCHBOX_GATEWAY"),
        ) from error
    return SubmitJobResponse(
        job_id=answered["job_id"], manifest_key=answered["manifest_key"], resource_count=answered["resource_count"]
    )


def _base(options: Settings) -> str:
    address = options.address("gateway").rstrip("/")
    if "://" not in address:
        return f"{'https' if options.ca_file else 'http'}://{address}"
    if not address.startswith(("http://", "https://")):
        raise CommandError(f"--gateway is HOST:PORT or an http(s) URL, not {address!r}", USAGE)
    return address


def _opener(options: Settings, base: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = []
    if "://127." in base or "://localhost" in base:
        handlers.append(_OPENER_WITHOUT_PROXY)
    if options.ca_file is not None:
        context = ssl.create_default_context(cafile=str(options.ca_file))
        if options.cert_file is not None:
            context.load_cert_chain(options.cert_file, options.key_file)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _refused(status: int, body: bytes) -> CommandError:
    """The problem in an error body: ProtoJSON of `google.rpc.Status`."""
    exit_code = UNAVAILABLE if status >= 500 else REFUSED
    try:
        error: dict[str, Any] = json.loads(body)
        details = {detail["@type"].rpartition(".")[2]: detail for detail in error.get("details", [])}
        problem = CommandError(error["message"], exit_code)
    except (ValueError, KeyError, TypeError, AttributeError):
        return CommandError(f"the gateway answered {status}: {body[:200].decode(errors='replace')}", exit_code)
    problem.reason = details.get("ErrorInfo", {}).get("reason", f"HTTP_{status}")
    problem.violations = [
        (broken.get("field", ""), broken.get("description", ""))
        for broken in details.get("BadRequest", {}).get("fieldViolations", [])
    ]
    return problem.with_hint()
