"""JSON from endpoints and for them: strictly JSON, and text that every UTF-8 encoder takes."""

from __future__ import annotations

import json
from typing import Any, Final

from worker_svc.task_json import has_half_pair
from worker_svc.tasks.failures import bad_payload, protocol

WIRE_FACTOR: Final = 4
"""A result may take this many times its bytes on the wire: escapes, white space, and what stands around it."""
WIRE_ROOM: Final = 65_536
"""Bytes on the wire beside the result."""


def wire_limit(max_result_bytes: int) -> int:
    """The most bytes to read for a result of that size."""
    return max_result_bytes * WIRE_FACTOR + WIRE_ROOM


def parsed(raw: bytes | str) -> Any:
    """The value of a JSON text, integers of any size kept. TaskError `HANDLER_PROTOCOL` for anything else."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise protocol("the endpoint sent JSON that is nested too deeply") from None
    except ValueError as error:
        raise protocol(f"the endpoint sent what is no JSON: {type(error).__name__}") from error


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


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined, and U+FFFD in place of half ones."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
