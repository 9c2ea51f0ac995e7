"""How spans of time and sizes are told."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def span(ms: int) -> str:
    """`30 d`, `36 h`: in the greatest unit that divides it."""
    for size, unit in _UNITS:
        if ms and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
