"""`fetchbox submit`: a manifest goes in, and with `--watch` one sees what becomes of it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from google.api.httpbody_pb2 import HttpBody

from cli import channels, rest
from cli.command import command
from cli.follow import follow, leaving
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, USAGE, CommandError, repeatable
from cli.progress import JobProgress
from cli.settings import Settings, settings
from cli.summary import failures_of, show_summary
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest, SubmitJobResponse
from kernel.ids import uuid7

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Submission:
    """One document and what is said about it; `encoding` is `gzip` or empty."""

    document: bytes
    job_type: str
    tenant: str
    key: str
    encoding: str = ""


@command(app, "submit")
def submit_file(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="The manifest, a JSON document. `-` reads stdin; `.gz` is sent as it is.")
    ],
    job_type: Annotated[str, typer.Option(help="The configured job type.")] = "default",
    tenant: Annotated[str, typer.Option(help="The tenant; a token's tenant wins.")] = "",
    idempotency_key: Annotated[str, typer.Option(help="The same key and document always mean the same job.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job to its end.")] = False,
    by_rest: Annotated[
        bool, typer.Option("--rest/--grpc", help="Submit to the gateway, or to the ingest service.")
    ] = False,
) -> None:
    """Submit a manifest of URLs: it becomes a fetch job.

    Exit codes: 0 accepted (with --watch: all stored), 1 some resources failed, 2 wrong usage, 3 refused,
    4 unavailable.

    `fetchbox submit manifest.json --watch`

    `generate | fetchbox submit - --job-type gallery --idempotency-key crawl-17`
    """
    options = settings(context)
    encoding = "gzip" if file.suffix == ".gz" else ""
    submission = Submission(_read(file), job_type, tenant, idempotency_key or f"cli-{uuid7()}", encoding)
    answer = submit(options, submission, by_rest=by_rest)
    if watch:
        _watch(options, answer)
    elif out.json:
        out.document(as_dict(answer))
    else:
        out.facts({"job": answer.job_id, "resources": answer.resource_count, "manifest": answer.manifest_key})
        out.note(f"`fetchbox jobs watch {answer.job_id}` follows it.")


def submit(options: Settings, submission: Submission, *, by_rest: bool) -> SubmitJobResponse:
    """Submits at the gateway or at the ingest service. Raises a CommandError with what was said."""
    with repeatable(submission.key):
        return _by_rest(options, submission) if by_rest else _by_grpc(options, submission)


def _by_grpc(options: Settings, submission: Submission) -> SubmitJobResponse:
    request = SubmitJobRequest(
        job_type=submission.job_type,
        tenant=submission.tenant,
        idempotency_key=submission.key,
        document=HttpBody(content_type="application/json", data=submission.document),
    )
    metadata = (("content-encoding", submission.encoding),) if submission.encoding else ()
    with channels.ingest(options) as stub:
        return stub.SubmitJob(request, metadata=metadata)


def _by_rest(options: Settings, submission: Submission) -> SubmitJobResponse:
    headers = {
        "X-Fetchbox-Job-Type": submission.job_type,
        "X-Fetchbox-Tenant": submission.tenant,
        "X-Fetchbox-Idempotency-Key": submission.key,
        "Content-Encoding": submission.encoding,
    }
    return rest.post_job(options, submission.document, {name: value for name, value in headers.items() if value})


def _watch(options: Settings, answer: SubmitJobResponse) -> None:
    out.note(f"accepted as {answer.job_id}", "green")
    with channels.operator(options) as stub:
        with leaving(answer.job_id), JobProgress(answer.job_id) as progress:
            job = follow(stub, answer.job_id, progress.update)
        failures = failures_of(stub, job)
    if out.json:
        out.document(as_dict(answer) | {"job": as_dict(job), "failures": [as_dict(letter) for letter in failures]})
    else:
        show_summary(job, failures)
    if job.status != "completed":
        raise typer.Exit(SOME_FAILED)


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}", USAGE) from error
