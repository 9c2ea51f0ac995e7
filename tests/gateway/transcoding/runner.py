"""One case from its rules to its verdict, with a real gateway and a real service."""

import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gateway.limits import Limits
from gateway.options import Options
from gateway.routes import RouteError
from tests.gateway.support import Rule, add_service, new_pool, running
from tests.gateway.transcoding import wire
from tests.gateway.transcoding.expectation import Outcome, failures, is_in_words
from tests.gateway.transcoding.upstream import behaviour, not_grpc, understands

_PATTERNS = ("get", "put", "post", "delete", "patch", "custom", "body", "response_body", "additional_bindings")
_CARRIES = re.compile("request carries ([a-z-]+): ([^ ;]+)")
_RETURNS = re.compile("initial metadata ([a-z-]+):")
_FOREIGN = ("nothing listens", "grpc-status:", "HTTP ")
"""How the upstreams begin that are no gRPC service."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: `failed` names the expectations that do not hold; None: it is in words, and was not run."""

    case: dict[str, Any]
    failed: list[str] | None
    seen: str = ""

    @property
    def passed(self) -> bool:
        return self.failed == []


class Runner:
    """Runs cases over the messages of `transcoding.proto`."""

    def __init__(self, files: bytes) -> None:
        """`files` is the descriptor set of the proto with its imports."""
        self._files = FileDescriptorSet.FromString(files)

    async def run(self, case: dict[str, Any]) -> Verdict:
        """The verdict of one case."""
        given, expected = case["given"], case["expected"]
        is_other = case["area"].startswith("sse") or "generate" in given
        if is_other or is_in_words(expected) or not understands(given.get("upstream", "")):
            return Verdict(case, None)
        pool = new_pool(self._files)
        if "config" in expected:
            return await self._configure(case, pool)
        if "request" not in given:
            return Verdict(case, None)
        outcome = await self._ask(given, expected, pool)
        return Verdict(case, failures(outcome, expected), f"{outcome.answer.status} {outcome.answer.body[:300]!r}")

    async def _configure(self, case: dict[str, Any], pool: Any) -> Verdict:
        try:
            service = add_service(pool, _rules(case["given"]), "transcoding.proto")
            async with running(pool, service, {}):
                found = "accept"
        except (RouteError, TypeError, ValueError) as error:
            found, problem = "reject", str(error)
        else:
            problem = ""
        return Verdict(case, [] if found == case["expected"]["config"] else ["config"], problem)

    async def _ask(self, given: dict[str, Any], expected: dict[str, Any], pool: Any) -> Outcome:
        options, words = given.get("options", {}), given.get("upstream", "")
        rules = _rules(given)
        service = add_service(pool, rules, "transcoding.proto")
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(not_grpc(words)) if words.startswith(_FOREIGN) else ""
            functions: dict[str, Any] = {}
            gateway = await stack.enter_async_context(
                running(
                    pool,
                    service,
                    functions,
                    limits=Limits(body=options.get("max_request_bytes", 1 << 20), heartbeat=15),
                    target=target,
                    options=_options(options),
                )
            )
            if words and not target:
                functions.update(dict.fromkeys([rule.name for rule in rules], behaviour(words, gateway.new)))
            if "precondition" in expected:
                bad = {**given["request"], "headers": {"grpc-timeout": "BAD"}}
                await wire.ask(gateway.port, bad)
                gateway.calls.clear()
            return Outcome(await wire.ask(gateway.port, _request(given)), gateway.calls)


def _request(given: dict[str, Any]) -> dict[str, Any]:
    """The request of a case, which asks for the form of a stream as its options say: an array unless they do."""
    request = given["request"]
    headers = dict(request.get("headers", {}))
    if carried := _CARRIES.search(given.get("upstream", "")):
        headers[carried[1]] = carried[2]
    if not any(name.lower() == "accept" for name in headers):
        form = given.get("options", {}).get("stream", "")
        headers["Accept"] = "application/x-ndjson" if form == "ndjson" else "application/json"
    return {**request, "headers": headers}


def _options(options: dict[str, Any]) -> Options:
    printing = options.get("print", "")
    return Options(
        zeros=printing == "always",
        proto_names=printing == "proto_names",
        case_insensitive_enums=bool(options.get("case_insensitive_enums")),
        ignore_unknown_query=bool(options.get("ignore_unknown_query")),
    )


def _rules(given: dict[str, Any]) -> list[Rule]:
    headers = [name.lower() for name in given.get("request", {}).get("headers", {})]
    returned = _RETURNS.findall(given.get("upstream", ""))
    return [_rule(one, {"request_headers": headers, "response_headers": returned}) for one in given["rules"]]


def _rule(one: dict[str, Any], rest: dict[str, Any]) -> Rule:
    return Rule(
        one["rpc"],
        {name: one[name] for name in _PATTERNS if name in one},
        (_full(one.get("request_type", "Job")), _full(one.get("response_type", "Echo"))),
        streams=one.get("server_streaming", False),
        client_streams=one.get("client_streaming", False),
        rest=rest,
    )


def _full(name: str) -> str:
    return name if "." in name else f"xc.v1.{name}"
