"""The days of a report: which day of its time zone a time belongs to, and how long each day is.

Time zones are read once, here, by Python; Spark only adds and divides. So a report depends neither on the time zone of
a process nor on that of Spark's session, and both have the same clock changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from pipeline.reports.report import Period

DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class DaySpan:
    """A part of a day: all of it, but where a clock change lies within it."""

    day: date
    begin_ms: int
    end_ms: int
    """Exclusive."""


@dataclass(frozen=True, slots=True)
class Days:
    """The days of a period, in the time zone of the period."""

    period: Period
    spans: tuple[DaySpan, ...]
    """In order, without a gap."""
    offsets: tuple[tuple[int, int], ...]
    """`(from, offset)` in ms: what is to be added to a time for the local clock, from when on; in order."""
    begin_ms: int
    """When the first day begins."""
    end_ms: int
    """When the last day is over, or the time of the report where that is earlier."""

    @classmethod
    def of(cls, period: Period, now_ms: int | None = None) -> Days:
        """The days of a period, as seen at `now_ms`; None: once it is over. ZoneInfoNotFoundError for no zone."""
        first, last = (_midnight(day) for day in (period.first, period.last))
        offsets = tuple(_offsets(ZoneInfo(period.zone), first - 2 * DAY_MS, last + 3 * DAY_MS))
        every = list(_spans(offsets, last + 3 * DAY_MS))
        spans = tuple(span for span in every if period.first <= span.day <= period.last)
        begin = min(span.begin_ms for span in every if span.day >= period.first)
        end = max(span.end_ms for span in every if span.day <= period.last)
        return cls(period, spans, offsets, begin, end if now_ms is None else min(end, now_ms))

    def hours(self) -> dict[date, float]:
        """How long each day is. A day that a zone leaves out is missing."""
        lengths: dict[date, float] = {}
        for span in self.spans:
            lengths[span.day] = lengths.get(span.day, 0.0) + (span.end_ms - span.begin_ms) / _HOUR_MS
        return lengths

    def day_sql(self, ms: str) -> str:
        """SQL for the day of the column `ms` (bigint, since the epoch); null where it is no day of the period."""
        if not self.spans:
            return "cast(null as date)"
        begin, end = self.spans[0].begin_ms, self.spans[-1].end_ms
        local = f"{ms} + {self._offset_sql(ms, begin, end)}"
        inside = f"{ms} >= {begin} and {ms} < {end}"
        return f"case when {inside} then date_from_unix_date(cast(floor(({local}) / {DAY_MS}) as int)) end"

    def hours_sql(self, day: str) -> str:
        """SQL for the length of the column `day` in hours."""
        others = {day: length for day, length in self.hours().items() if length != 24}
        cases = "".join(f" when {day} = date'{other}' then {length!r}D" for other, length in others.items())
        return f"case{cases} else 24D end" if cases else "24D"

    def _offset_sql(self, ms: str, begin: int, end: int) -> str:
        pieces = [(start, offset) for start, offset in self.offsets if start < end]
        while len(pieces) > 1 and pieces[1][0] <= begin:
            del pieces[0]
        cases = "".join(f" when {ms} < {until} then {offset}" for (_, offset), (until, _) in pairwise(pieces))
        return f"(case{cases} else {pieces[-1][1]} end)" if cases else str(pieces[-1][1])


def _midnight(day: date) -> int:
    return (day - _EPOCH).days * DAY_MS


def _offset(zone: ZoneInfo, ms: int) -> int:
    known = datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone).utcoffset() or timedelta()
    return known // timedelta(milliseconds=1)


def _offsets(zone: ZoneInfo, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """From `begin` on, each offset with its first instant. No zone changes its clock twice in an hour."""
    offset = _offset(zone, begin)
    yield begin, offset
    for hour in range(begin, end, _HOUR_MS):
        later = _offset(zone, hour + _HOUR_MS)
        if later == offset:
            continue
        low, high = hour, hour + _HOUR_MS
        while high - low > 1000:
            middle = (low + high) // 2000 * 1000
            low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
        offset = later
        yield high, offset


def _spans(offsets: tuple[tuple[int, int], ...], end: int) -> Iterator[DaySpan]:
    ends = [*(start for start, _ in offsets[1:]), end]
    for (begin, offset), stop in zip(offsets, ends, strict=True):
        for number in range((begin + offset) // DAY_MS, (stop - 1 + offset) // DAY_MS + 1):
            opens, closes = number * DAY_MS - offset, (number + 1) * DAY_MS - offset
            yield DaySpan(_EPOCH + timedelta(days=number), max(begin, opens), min(stop, closes))
