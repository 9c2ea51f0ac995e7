"""User metadata as S3 can hold it: ASCII headers, 2 KB in all."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

LONGEST: Final = 2048
"""Bytes of all names and values together (S3)."""

LEFT_OUT: Final = "fetchbox-left-out"
"""The metadata name that says how many entries did not fit."""

_PLAIN: Final = "".join(sorted(set(string.printable) - set(string.whitespace) - {"%"})) + " "
_NAME: Final = "-_."
_PLAIN_NAME: Final = re.compile(r"[a-z0-9._-]*")
_PLAIN_VALUE: Final = re.compile(r"(?! )[ -$&-~]*(?<! )")
_HEADERS: Final = frozenset(
    {"cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "storage-class"}
)
"""Names that obstore would send as headers of the object itself."""
_RESERVE: Final = len(LEFT_OUT) + 4


def encode(metadata: Mapping[str, str]) -> dict[str, str]:
    """The entries with what is no printable ASCII percent-encoded, names in lower case.

    Entries without a value are not kept (SeaweedFS would lose them). Entries that would exceed 2 KB are left out, the
    later ones first, and counted in `fetchbox-left-out`.
    """
    encoded: dict[str, str] = {}
    left_out, room = 0, LONGEST - _RESERVE
    for name, value in metadata.items():
        if not value:
            continue
        safe_name, safe_value = _encoded_name(name), _encoded(value)
        size = len(safe_name) + len(safe_value)
        if size > room or not safe_name:
            left_out += 1
            continue
        room -= size
        encoded[safe_name] = safe_value
    if left_out:
        encoded[LEFT_OUT] = str(left_out)
    return encoded


def decode(metadata: Mapping[str, str]) -> dict[str, str]:
    """What `encode` was given; entries of others as they are, unless they look percent-encoded."""
    return {unquote(name): unquote(value) for name, value in metadata.items()}


def _encoded_name(name: str) -> str:
    lower = name.lower()
    if lower in _HEADERS:
        return f"%{ord(lower[0]):02x}{lower[1:]}"
    if _PLAIN_NAME.fullmatch(lower):
        return lower
    return quote(lower, safe=_NAME).lower()


def _encoded(value: str) -> str:
    if _PLAIN_VALUE.fullmatch(value):
        return value
    safe = quote(value, safe=_PLAIN)
    # HTTP strips spaces around a header's value.
    stripped = safe.strip(" ")
    if stripped == safe:
        return safe
    head = len(safe) - len(safe.lstrip(" "))
    tail = len(safe) - head - len(stripped)
    return "%20" * head + stripped + "%20" * tail
