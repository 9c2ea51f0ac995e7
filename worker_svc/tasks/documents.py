"""JSON from endpoints and for them: strictly JSON, and text that every UTF-8 encoder takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from worker_svc.task_json import has_half_pair
from worker_svc.tasks.failures import bad_payload, protocol
from worker_svc.tasks.json_numbers import integer

WIRE_FACTOR: Final = 4
"""A result may take this many times its bytes on the wire: escapes, white space, and what stands around it."""
WIRE_ROOM: Final = 65_536
"""Bytes on the wire beside the result."""
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_WHY: Final = 100
_SAID: Final = frozenset({"content", "text", "reasoning", "reasoning_content", "arguments", "name"})
"""Members that hold what a model said."""


def wire_limit(max_result_bytes: int) -> int:
    """The most bytes to read for a result of that size."""
    return max_result_bytes * WIRE_FACTOR + WIRE_ROOM


def parsed(raw: bytes | str) -> Any:
    """The value of a JSON text, integers of any size kept. TaskError `HANDLER_PROTOCOL` for anything else."""
    return _read(raw, _STRICT)


def parsed_leniently(raw: bytes | str) -> Any:
    """The same, with null in place of the numbers that JSON does not have (`NaN`, `-Infinity`)."""
    return _read(raw, _LENIENT)


def all_parsed(raw: str) -> list[Any]:
    """The values of JSON texts that follow each other with nothing but white space between, likewise.

    A member that comes twice is the one that is not null; what a model said must not be said in two ways.
    """
    values, place = [], 0
    with _reading():
        while (start := _blank(raw, place)) < len(raw):
            value, place = _CHUNKS.raw_decode(raw, start)
            values.append(value)
    return values


def _read(raw: bytes | str, decoder: json.JSONDecoder) -> Any:
    with _reading():
        return decoder.decode(raw if isinstance(raw, str) else raw.decode("utf-8-sig"))


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise protocol("the endpoint sent JSON that is nested too deeply") from None
    except ValueError as error:
        raise protocol(f"the endpoint sent what is no JSON: {str(error)[:_WHY]}") from error


def parsed_result(raw: bytes) -> Any:
    """The same for a value that is kept as it is: text in it that is no Unicode is refused as well."""
    value = parsed(raw)
    try:
        half = has_half_pair(raw, value)
    except RecursionError:
        raise protocol("the endpoint sent JSON that is nested too deeply") from None
    if half:
        raise protocol("the endpoint sent text with half a surrogate pair")
    return value


def encoded(body: dict[str, Any]) -> bytes:
    """A request's body. TaskError `VALIDATION_PAYLOAD` for what JSON cannot hold."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise bad_payload(f"the payload is no JSON, or nested too deeply: {error}") from error


def in_any_charset(raw: bytes) -> str:
    """Words for people: UTF-8, or what is most often sent in its place."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
        return text if "".join(text.split()).isprintable() else raw.decode("utf-8", "replace")


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined, and U+FFFD in place of half ones."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _blank(text: str, place: int) -> int:
    """Where the white space that begins at this place ends."""
    match = _BLANK.match(text, place)
    return match.end() if match is not None else place


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which a name may come twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        before = found.get(name)
        if before is None or value is not None:
            if name in _SAID and before is not None and before != value:
                raise ValueError(f"the member {name!r} comes twice")
            found[name] = value
    return found


_STRICT: Final = json.JSONDecoder(parse_constant=_no_constant)
_LENIENT: Final = json.JSONDecoder(parse_constant=lambda _: None)
_CHUNKS: Final = json.JSONDecoder(parse_constant=lambda _: None, parse_int=integer, object_pairs_hook=_once)
