"""Numbers as JSON has them, and as it does not."""

from __future__ import annotations

from typing import Any, Final

_LONGEST: Final = 9


def whole_number(value: Any) -> int | None:
    """An index that is a number, or a text of one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _LONGEST:
        return int(value)
    return value if isinstance(value, int) else None


def integer(text: str) -> int | None:
    """An integer; None for one of so many digits that reading it would take long."""
    try:
        return int(text)
    except ValueError:
        return None
