"""Text that a server, a worker elsewhere or other people's code gave, made fit to be recorded and shown.

Such text may hold anything: bytes that are no UTF-8, terminal escapes, marks that turn the direction of writing, or a
megabyte. `fit` makes it valid, visible and bounded. Whatever records text of others goes through here, and what is
written to a terminal does once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

LONGEST: Final = 2048
"""Characters of one text."""
LONGEST_ALL: Final = 16_384
"""Characters of all fields of one record, or of all parts of a list."""
MOST_PARTS: Final = 32
"""Parts of a list."""
CUT: Final = "…"
"""What stands where something was cut."""

_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls but tab and line feed, marks that are not seen or turn the direction, and halves of pairs."""


def visible(text: str) -> str:
    """The text with what a terminal would obey, or UTF-8 cannot hold, as escapes that one sees."""
    return _UNFIT.sub(_shown, text)


def visible_json(document: str) -> str:
    """The same for a JSON document, which means what it meant: only its strings hold such characters."""
    return _UNFIT.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def fit(text: str, longest: int = LONGEST) -> str:
    """The text visible, and no longer than `longest` characters."""
    seen = visible(text[: longest + 1])
    return seen if len(seen) <= longest else f"{seen[: longest - 1]}{CUT}"


def fit_all(texts: Iterable[str], longest: int = LONGEST) -> tuple[str, ...]:
    """The first texts, each fit, and together no longer than `LONGEST_ALL`; a cut list ends with `…`."""
    kept: list[str] = []
    room = LONGEST_ALL
    for text in texts:
        fitting = fit(text, longest)
        room -= len(fitting)
        if room < 0 or len(kept) == MOST_PARTS:
            return (*kept, CUT)
        kept.append(fitting)
    return tuple(kept)


def fit_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a record, each fit, and together no longer than `LONGEST_ALL`: the longest are cut first."""
    kept = {fit(name, 128): fit(value) for name, value in fields.items()}
    longest = LONGEST
    while longest > 32 and sum(map(len, kept.values())) > LONGEST_ALL:
        longest //= 2
        kept = {name: fit(value, longest) for name, value in kept.items()}
    return kept


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDCA0 <= code <= 0xDCFF:
        return chr(code - 0xDC00)  # a byte that was no UTF-8, in the encoding that the web had before
    if 0xDC80 <= code < 0xDCA0:
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"
