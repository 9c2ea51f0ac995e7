"""Which values are marked on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_MARKS: Final = 4
"""How many marks above zero there are at the most, or about."""
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_SPANS: Final = (
    *(10**power * first for power in range(3) for first in (1, 2, 5)),
    *(_SECOND * number for number in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
)
_DECADES: Final = (
    *(1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE),
    *(_HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY, 3650 * _DAY),
)
_FLOORS: Final = (0.99, 0.95, 0.9, 0.5)


def counts(top: float) -> Sequence[float]:
    """From 0 in steps of 1, 2 or 5 times a power of ten."""
    return _up_to(top, max(1, _nice(top / _MARKS)))


def sizes(top: float) -> Sequence[float]:
    """The same for bytes, by powers of 1024."""
    power = 1024 ** int(math.log(max(top, 1), 1024))
    return _up_to(top, max(1, _nice(top / _MARKS / power) * power))


def durations(top: float) -> Sequence[float]:
    """The same for milliseconds, in steps that clocks have."""
    wanted = top / _MARKS
    step = next((step for step in _SPANS if step >= wanted), None)
    return _up_to(top, step or _DAY * max(1, _nice(wanted / _DAY)))


def decades(low: float, high: float) -> Sequence[float]:
    """Milliseconds around `low` to `high`, for an axis of their logarithms; at least two."""
    below = max((place for place, mark in enumerate(_DECADES) if mark <= low), default=0)
    above = next((place for place, mark in enumerate(_DECADES) if mark >= high), len(_DECADES) - 1)
    if below == above:
        above = min(above + 1, len(_DECADES) - 1)
        below = min(below, above - 1)
    return _DECADES[below : above + 1]


def shares(low: float) -> Sequence[float]:
    """From a round share not above `low` up to 1."""
    floor = next((floor for floor in _FLOORS if low >= floor), 0.0)
    return [round(floor + (1 - floor) * step / 5, 3) for step in range(6)]


def _nice(step: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below `step`."""
    if step <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(step))
    return next(first * power for first in (1, 2, 5, 10) if first * power >= step * (1 - 1e-9))


def _up_to(top: float, step: float) -> Sequence[float]:
    steps = max(1, math.ceil(top / step - 1e-9))
    return [step * number for number in range(steps + 1)]
