"""Payloads and results of tasks: JSON in, JSON out, and nothing of it changed on the way."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

import orjson

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def payload_object(raw: bytes) -> dict[str, Any]:
    """A payload as its handler gets it: the JSON object, integers of up to 4,300 digits kept.

    What is no JSON object (RFC 8259, UTF-8), or has a longer integer, which would take long to read, is
    `{"_raw": text}`; bytes that are no UTF-8 are replaced in it.
    """
    try:
        value = _decode(raw.decode())
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"_raw": raw.decode(errors="replace")}


def json_bytes(value: Any) -> bytes:
    """A handler's value as JSON. `ValueError` says why JSON cannot hold it; infinite and missing numbers it cannot.

    Half a surrogate pair is refused too: most readers of JSON would not take it.
    """
    try:
        encoded = orjson.dumps(value)
    except TypeError as error:  # numbers beyond 64 bits, keys that are numbers, deep nesting: `json` knows more
        return _by_json(value, error)
    if b"null" in encoded and _has_no_number(value):  # which is what orjson makes of them
        raise ValueError("a number in it is infinite or not a number")
    return encoded


def has_half_pair(raw: bytes, value: Any) -> bool:
    """Whether a text of the value that was read from `raw` has half a surrogate pair. May raise `RecursionError`."""
    if not _SURROGATE.search(raw):
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _by_json(value: Any, error: TypeError) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as other:
        raise ValueError("a text in it has half a surrogate pair") from other
    except (TypeError, ValueError, RecursionError) as other:
        # orjson's word is the better one for a type that neither knows.
        raise ValueError(str(error if isinstance(other, TypeError) else other)) from other


def _has_no_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_number, value))


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_decode = json.JSONDecoder(parse_constant=_refuse).decode
