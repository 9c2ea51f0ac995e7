"""A file job as it stands on a list: one JSON object.

The bytes are the job: whatever a foreign producer wrote into them survives every move, and where a member has to
change (`retries`), only that member is rewritten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stub lacks it
from typing import Any, Final

import orjson

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STEPS: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_SPAN: Final = re.compile(r"[0-9a-f]{16}")
_LONGEST: Final = 4096
"""Characters of a text: more than a path may have, and little enough for 500 jobs to be told of in one answer."""
_DEEPEST: Final = 200
"""Objects and arrays within each other. How deep Python reads depends on the depth of its caller, which is no rule."""
_NESTING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_LARGEST: Final = 2**53
"""Up to here every language counts exactly."""


class JobError(ValueError):
    """The bytes are no file job; the message names the member and the rule."""


@dataclass(frozen=True, slots=True)
class FileJob:
    """A file that is to be stored."""

    id: str
    filepath: str
    filesize: int
    """Bytes, as the producer saw them."""
    priority: str = ""
    retries: int = 0
    creation_time: str = ""
    """RFC 3339 with up to nine decimals."""
    trace_id: str = ""
    span_id: str = ""
    origin_queue: str = ""
    replays: int = 0
    """How often an operator has put it back from the dead letters."""

    @property
    def job_id(self) -> str:
        """Its id, by the name that all other work has it under."""
        return self.id

    @property
    def traceparent(self) -> str:
        """The trace that it belongs to as a W3C `traceparent`; empty where it names none."""
        if _TRACE.fullmatch(self.trace_id) and _SPAN.fullmatch(self.span_id):
            return f"00-{self.trace_id}-{self.span_id}-01"
        return ""

    def encode(self) -> bytes:
        """The job as it goes onto a list. Members of FetchBox's own are left out where they say nothing."""
        members: dict[str, Any] = {
            "id": self.id,
            "filepath": self.filepath,
            "filesize": self.filesize,
            "priority": self.priority,
            "retries": self.retries,
            "creation_time": self.creation_time,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "origin_queue": self.origin_queue,
        }
        return orjson.dumps(members)


def read(payload: bytes) -> FileJob:
    """The job in these bytes. Raises `JobError`; unknown members are nobody's business and stay where they are."""
    try:
        # Not as bytes: those may be UTF-16 to `json`, which no script and no other program would read.
        members = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise JobError(f"is no JSON: {error}") from error
    if not isinstance(members, dict):
        raise JobError("is no JSON object")
    if _is_too_deep(payload):
        raise JobError(f"has more than {_DEEPEST} objects and arrays within each other")
    job = FileJob(
        id=_text(members, "id"),
        filepath=_text(members, "filepath"),
        filesize=_count(members, "filesize"),
        priority=_text(members, "priority"),
        retries=_count(members, "retries"),
        creation_time=_text(members, "creation_time"),
        trace_id=_text(members, "trace_id"),
        span_id=_text(members, "span_id"),
        origin_queue=_text(members, "origin_queue"),
        replays=_count(members, "replays"),
    )
    if not job.id or not job.filepath:
        raise JobError(f"{'filepath' if job.id else 'id'}: must not be empty")
    if "\0" in job.filepath:
        raise JobError("filepath: must have no NUL")
    return job


def _is_too_deep(payload: bytes) -> bool:
    """Of bytes that are JSON."""
    if payload.count(b"[") + payload.count(b"{") <= _DEEPEST:
        return False
    depth = 0
    for token in _NESTING.finditer(payload):
        depth += _STEPS.get(token.group(), 0)
        if depth > _DEEPEST:
            return True
    return False


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name, "")
    if not isinstance(value, str):
        raise JobError(f"{name}: must be a string")
    if len(value) > _LONGEST:
        raise JobError(f"{name}: must have at most {_LONGEST} characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise JobError(f"{name}: has half a surrogate pair") from error
    return value


def _count(members: dict[str, Any], name: str) -> int:
    value = members.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise JobError(f"{name}: must be a whole number from 0 to 2^53")
    return value


def with_members(payload: bytes, **members: Any) -> bytes:
    """The same bytes with these members set to JSON values; all others stand as they were written.

    `payload` is an object that `read` accepts. A member that is there twice is changed in both places.
    """
    text = payload.decode()
    spans: dict[str, list[tuple[int, int]]] = {}
    for name, _, start, end in _members(text):
        spans.setdefault(name, []).append((start, end))
    new = {name: orjson.dumps(value).decode() for name, value in members.items()}
    edits = [(start, end, new[name]) for name in new for start, end in spans.get(name, ())]
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    added = ",".join(f"{json.dumps(name)}:{value}" for name, value in new.items() if name not in spans)
    if added:
        close = text.rindex("}")
        text = text[:close] + ("," if spans else "") + added + text[close:]
    return text.encode()


def without_members(payload: bytes, *names: str) -> bytes:
    """The same object without these members; names and values of all others stand as they were written."""
    text = payload.decode()
    members = list(_members(text))
    kept = [text[begin:end] for name, begin, _, end in members if name not in names]
    return payload if len(kept) == len(members) else ("{" + ",".join(kept) + "}").encode()


def _members(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Each member of the object: its name, where it begins, where its value begins, and where that ends."""
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        begin = at
        name, at = scanstring(text, at + 1)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield name, begin, start, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # noqa: S101 - it matches nothing at all, too
    return match.end()


def time_text(ns: int) -> str:
    """Nanoseconds since the epoch as RFC3339Nano, the form of `creation_time`."""
    seconds, rest = divmod(ns, 10**9)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") + "Z"
