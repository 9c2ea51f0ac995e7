"""User metadata as S3 can hold it: ASCII headers, 2 KB in all."""

from __future__ import annotations

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
_RESERVE: Final = len(LEFT_OUT) + 4


def encode(metadata: Mapping[str, str]) -> dict[str, str]:
    """The entries with what is no printable ASCII percent-encoded, names in lower case.

    Entries that would exceed 2 KB are left out, the later ones first to go, and counted in `fetchbox-left-out`.
    """
    encoded: dict[str, str] = {}
    left_out, room = 0, LONGEST - _RESERVE
    for name, value in metadata.items():
        safe_name, safe_value = quote(name.lower(), safe=_NAME), _encoded(value)
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


def _encoded(value: str) -> str:
    safe = quote(value, safe=_PLAIN)
    # HTTP strips spaces around a header's value.
    stripped = safe.strip(" ")
    if stripped == safe:
        return safe
    head = len(safe) - len(safe.lstrip(" "))
    tail = len(safe) - head - len(stripped)
    return "%20" * head + stripped + "%20" * tail
