"""Whether an answer is what a case expects: each key of `expected` is one check, by its name."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from tests.gateway.support import Call
from tests.gateway.transcoding.wire import Answer


@dataclass(frozen=True)
class Outcome:
    """What came of a request: the answer, and the calls that the upstream saw."""

    answer: Answer
    calls: list[Call]

    @property
    def json(self) -> Any:
        return json.loads(self.answer.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.answer.body.splitlines() if line]

    @property
    def bound(self) -> list[Any]:
        """The requests that the upstream saw, their fields by the names of the proto, without default values."""
        return [_plain(call.request) for call in self.calls]


def _plain(message: Any) -> Any:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _bound(outcome: Outcome, value: Any) -> bool:
    return [_same(found) for found in outcome.bound] == [_same(value)]


def _same(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _has(value: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(value, dict) and all(key in value and _has(value[key], one) for key, one in part.items())
    return bool(value == part)


def _mentions(outcome: Outcome, words: list[str]) -> bool:
    text = outcome.answer.body.decode(errors="replace")
    message = str(outcome.json.get("message", "")) + text
    return all(word.lower() in message.lower() for word in words)


def _content_type(outcome: Outcome, value: str) -> bool:
    media = (outcome.answer.header("content-type") or "").partition(";")[0].strip()
    return media in value.split(" or ")


def _headers(outcome: Outcome, value: dict[str, Any]) -> bool:
    for name, wanted in value.items():
        found = outcome.answer.header(name)
        parts = {part.strip().lower() for part in (found or "").split(",")}
        if found is None or not {one.lower() for one in ([wanted] if isinstance(wanted, str) else wanted)} <= parts:
            return False
    return True


def _metadata(outcome: Outcome) -> dict[str, Any]:
    return outcome.calls[0].metadata


def _metadata_has(outcome: Outcome, value: dict[str, str]) -> bool:
    wanted = {
        name: bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text
        for name, text in value.items()
    }
    found = _metadata(outcome)
    return all(_carries(found.get(name), text) for name, text in wanted.items())


def _carries(found: Any, text: Any) -> bool:
    """The gateway's own span stands in place of the client's, on the client's trace."""
    if isinstance(text, str) and re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", text):
        return isinstance(found, str) and found.split("-")[1] == text.split("-")[1]
    return bool(found == text)


def _any_of(outcome: Outcome, alternatives: list[Any]) -> bool:
    return any(not failures(outcome, one) for one in alternatives)


CHECKS: dict[str, Callable[[Outcome, Any], bool]] = {
    "status": lambda outcome, value: outcome.answer.status == value,
    "status_any_of": lambda outcome, value: outcome.answer.status in value,
    "grpc_code": lambda outcome, value: outcome.json["code"] == value,
    "error_mentions": _mentions,
    "never_mentions": lambda outcome, value: not any(word.encode() in outcome.answer.body for word in value),
    "details_json": lambda outcome, value: outcome.json["details"] == value,
    "rpc": lambda outcome, value: [call.rpc for call in outcome.calls] == [value],
    "bound": _bound,
    "bound_any_of": lambda outcome, value: any(_bound(outcome, one) for one in value),
    "bound_list": lambda outcome, value: [_same(one) for one in outcome.bound] == [_same(one) for one in value],
    "body": lambda outcome, value: outcome.answer.body.decode() == value,
    "body_json": lambda outcome, value: _same(outcome.json) == _same(value),
    "body_json_has": lambda outcome, value: _has(outcome.json, value),
    "body_json_lacks": lambda outcome, value: not set(value) & set(outcome.json),
    "body_lines_json": lambda outcome, value: [_same(one) for one in outcome.lines] == [_same(one) for one in value],
    "last_line_json_has": lambda outcome, value: _has(outcome.lines[-1], value),
    "content_type": _content_type,
    "headers": _headers,
    "header_any": lambda outcome, value: any(_headers(outcome, dict([one.split(": ", 1)])) for one in value),
    "response_headers_have": _headers,
    "response_headers_lack": lambda outcome, value: all(outcome.answer.header(name) is None for name in value),
    "metadata_has": _metadata_has,
    "metadata_has_any": lambda outcome, value: any(_metadata_has(outcome, one) for one in value),
    "metadata_lacks": lambda outcome, value: not set(value) & set(_metadata(outcome)),
    "metadata_like": lambda outcome, value: all(
        re.search(pattern, str(_metadata(outcome).get(name))) for name, pattern in value.items()
    ),
    "any_of": _any_of,
    "never": lambda outcome, value: bool(failures(outcome, value)),
}
NOTES = frozenset({"note", "precondition"})
"""Keys that are for the reader of a case, or that the runner acts on."""


def failures(outcome: Outcome, expected: dict[str, Any]) -> list[str]:
    """The keys whose check fails."""
    return [key for key, value in expected.items() if key not in NOTES and not _holds(key, outcome, value)]


def _holds(key: str, outcome: Outcome, value: Any) -> bool:
    try:
        return CHECKS[key](outcome, value)
    except (ValueError, KeyError, IndexError, TypeError):  # the answer has no such part
        return False


def is_in_words(expected: dict[str, Any]) -> bool:
    """Whether a person has to judge: a check of timing, memory, frames or a configuration of Envoy."""
    alternatives = expected.get("any_of", [])
    return bool(set(expected) - CHECKS.keys() - NOTES - {"config"}) or any(isinstance(one, str) for one in alternatives)
