"""Where an object came from, as user metadata: ASCII, bounded, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

MOST_BYTES: Final = 2_000
"""Names and values together; S3 takes 2 KB (of 1,024), SHA-256 included."""
_LONGEST_VALUE: Final = 512
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9-]+")
_VISIBLE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_SHA256_BYTES: Final = len("sha256") + 64


def metadata(facts: Mapping[str, str], own: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The metadata to store, and whether something did not fit.

    `facts` are the fetcher's and come first; `own` are the job's tags and hints, with names that the facts do not use.
    """
    kept: dict[str, str] = {}
    dropped = False
    room = MOST_BYTES - _SHA256_BYTES
    for name, value in [*_named(facts), *((name, value) for name, value in _named(own) if name not in facts)]:
        text = ascii_value(value)
        size = len(name) + len(text)
        if not name or name in kept or not text:
            continue
        if size > room:
            dropped = True
            continue
        kept[name] = text
        room -= size
    return kept, dropped


def ascii_value(value: str) -> str:
    """The value in visible ASCII, everything else and `%` percent-encoded as UTF-8; cut at 512 characters."""
    return quote(value.strip(), safe=_VISIBLE, errors="surrogatepass")[:_LONGEST_VALUE].rstrip()


def _named(values: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(_NOT_IN_A_NAME.sub("-", name.lower()).strip("-"), value) for name, value in values.items()]
