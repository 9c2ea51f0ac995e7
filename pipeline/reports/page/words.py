"""Numbers as people read them: counts, shares, sizes, durations, days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from pipeline.reports.page import scales

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LARGE: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**4, "k"))
_SPANS: Final = ((86_400_000, "d", 3_600_000, "h"), (3_600_000, "h", 60_000, "min"), (60_000, "min", 1000, "s"))
NOTHING: Final = "\u2013"
_SPACE: Final = "\u00a0"
"""Between a number and its unit: no line ends there."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How values of a kind are told and which of them are marked on an axis."""

    show: Callable[[float | None], str]
    ticks: Callable[[float], Sequence[float]]
    """From 0 up to at least the highest value."""


def count(value: float | None) -> str:
    """`1,204`, or with one digit behind the point where it is a mean."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}".removesuffix(".0")


def short(value: float | None) -> str:
    """`1,204`, `31.2 k`, `4.5 M`: for places with little room."""
    for size, letter in _LARGE:
        if value is not None and value >= size:
            return f"{_three(value / (size if letter != 'k' else 1000))}{_SPACE}{letter}"
    return count(value)


def share(value: float | None) -> str:
    """`99.4 %`; never 100 % or 0 % for what is not quite that."""
    if value is None:
        return NOTHING
    percent = value * 100
    if 0 < percent < 0.1:
        return f"<{_SPACE}0.1{_SPACE}%"
    if 99.9 < percent < 100:
        return f">{_SPACE}99.9{_SPACE}%"
    return f"{percent:.1f}".removesuffix(".0") + f"{_SPACE}%"


def size(value: float | None) -> str:
    """`512 B`, `1.4 MiB`."""
    if value is None:
        return NOTHING
    step = 0
    while value >= 1024 and step < len(_SIZES) - 1:
        value, step = value / 1024, step + 1
    return f"{_three(value) if step else f'{value:.0f}'}{_SPACE}{_SIZES[step]}"


def duration(ms: float | None) -> str:
    """`85 ms`, `1.2 s`, `3 min 20 s`, `2 d 4 h`."""
    if ms is None:
        return NOTHING
    ms = round(ms)
    if ms < 1000:
        return f"{ms}{_SPACE}ms"
    for large, named, small, rest_named in _SPANS:
        if ms >= large:
            rest = ms % large // small
            told = f"{ms // large:,}{_SPACE}{named}"
            return f"{told}{_SPACE}{rest}{_SPACE}{rest_named}" if rest else told
    return f"{_three(ms / 1000)}{_SPACE}s"


def day(value: date) -> str:
    """`27 Nov 2026`."""
    return f"{value.day} {value:%b} {value.year}"


def weekday(value: date) -> str:
    """`Fri 27 Nov 2026`."""
    return f"{value:%a} {day(value)}"


def _three(value: float) -> str:
    """About three digits, no zeros behind a point."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


COUNT: Final = Unit(short, scales.counts)
SIZE: Final = Unit(size, scales.sizes)
DURATION: Final = Unit(duration, scales.durations)
