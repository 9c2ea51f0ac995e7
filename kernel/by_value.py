"""JSON by its value: two texts that say the same give the same bytes, whatever their spacing, order or escapes.

For comparing alone. Numbers are compared by what they are worth, of any size and without rounding: `1`, `1.0` and `1e0`
are one.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any


def by_value(text: bytes) -> bytes:
    """What all spellings of a JSON value have in common; the text itself where it is none."""
    try:
        read = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_no_number)
        told: list[str] = []
        _tell(read, told)
        return "".join(told).encode()
    except (ValueError, RecursionError):
        return text


class _Number:
    """A number by its worth."""

    def __init__(self, text: str) -> None:
        if text.isdigit():  # most are, and so it takes a third of the time
            shown = text.rstrip("0")
            self.text = f"{shown}e{len(text) - len(shown)}" if shown else "0"
            return
        try:
            sign, digits, exponent = Decimal(text).as_tuple()
        except InvalidOperation as error:
            raise ValueError(text) from error
        whole = "".join(map(str, digits)).lstrip("0")
        shown = whole.rstrip("0")
        self.text = f"{'-' * sign}{shown}e{int(exponent) + len(whole) - len(shown)}" if shown else "0"


def _tell(value: Any, told: list[str]) -> None:
    """Appends the text of a value. A text of its own for each level would copy again and again what is deep."""
    if isinstance(value, dict):
        comma = "{"
        for name, held in sorted(value.items()):
            told.append(f"{comma}{json.dumps(name)}:")
            _tell(held, told)
            comma = ","
        told.append("}" if value else "{}")
    elif isinstance(value, list):
        comma = "["
        for held in value:
            told.append(comma)
            _tell(held, told)
            comma = ","
        told.append("]" if value else "[]")
    else:
        told.append(value.text if isinstance(value, _Number) else json.dumps(value))


def _no_number(text: str) -> Any:
    raise ValueError(text)
