"""Days put together into weeks or months where there are too many to be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from typing import Final

from pipeline.reports.page import words
from pipeline.reports.report import Period

MOST: Final = 62
"""The most bins of days or weeks."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Days of the period that belong together."""

    first: date
    last: date
    """Inclusive."""
    unit: str
    """`day`, `week` or `month`."""

    @property
    def days(self) -> int:
        """How many; fewer than a week or month has at the edges of the period."""
        return (self.last - self.first).days + 1

    @property
    def label(self) -> str:
        """For a row of a table or a mark on an axis."""
        return f"{self.first:%b} {self.first.year}" if self.unit == "month" else words.day(self.first)

    @property
    def title(self) -> str:
        """In full."""
        if self.first == self.last:
            return words.weekday(self.first)
        return f"{words.day(self.first)} to {words.day(self.last)}"


def bins(period: Period) -> Sequence[Bin]:
    """Days up to `MOST` of them, else calendar weeks, else months."""
    if period.days <= MOST:
        return [Bin(day, day, "day") for day in period]
    if period.days <= MOST * 7 - 6:
        return [_bin(group, "week") for group in _grouped(period, week=True)]
    return [_bin(group, "month") for group in _grouped(period, week=False)]


def totals(over: Sequence[Bin], daily: Mapping[date, float]) -> list[float]:
    """The sum of each bin."""
    return [sum(daily.get(one.first + timedelta(days=number), 0) for number in range(one.days)) for one in over]


def _grouped(period: Period, *, week: bool) -> list[list[date]]:
    key = (lambda day: day - timedelta(days=day.weekday())) if week else (lambda day: day.replace(day=1))
    return [list(group) for _, group in groupby(period, key)]


def _bin(days: Sequence[date], unit: str) -> Bin:
    return Bin(days[0], days[-1], unit)
