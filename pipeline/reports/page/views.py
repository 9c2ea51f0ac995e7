"""What charts need of the tables of a report: sums by day or by name, and quantiles of histograms put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.reports.histogram import quantile
from pipeline.reports.page.bins import Bin

Histogram = Mapping[int, int]
"""Bucket to count."""


def daily(table: pa.Table, column: str) -> dict[date, float]:
    """The sum of a column on each day that has any."""
    summed = table.group_by("day").aggregate([(column, "sum")])
    return dict(
        zip(summed["day"].to_pylist(), (value or 0 for value in summed[f"{column}_sum"].to_pylist()), strict=True)
    )


def total(table: pa.Table, column: str) -> int:
    """The sum of a column."""
    return int(pc.sum(table[column]).as_py() or 0)


def highest(table: pa.Table, column: str) -> float | None:
    """The highest value of a column; None of none."""
    found: float | None = pc.max(table[column]).as_py()
    return found


def sums(table: pa.Table, keys: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each combination of keys, with the sums of the columns under their own names."""
    summed = table.group_by(list(keys)).aggregate([(column, "sum") for column in columns])
    return [
        {column.removesuffix("_sum") if column not in keys else column: value for column, value in row.items()}
        for row in summed.to_pylist()
    ]


def histograms(latency: pa.Table, metric: str, keys: Sequence[str]) -> Mapping[tuple[Any, ...], Histogram]:
    """The histograms of a metric by keys, put together over everything else."""
    found: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    for row in sums(latency.filter(pc.equal(latency["metric"], metric)), [*keys, "bucket"], ["count"]):
        found[tuple(row[key] for key in keys)][row["bucket"]] = row["count"]
    return found


def binned(over: Sequence[Bin], by_day: Mapping[tuple[Any, ...], Histogram]) -> list[Histogram]:
    """The histogram of each bin."""
    return [added([by_day.get((one.first + timedelta(days=n),), {}) for n in range(one.days)]) for one in over]


def added(several: Sequence[Histogram]) -> Histogram:
    """Histograms put together."""
    counts: dict[int, int] = defaultdict(int)
    for one in several:
        for bucket, number in one.items():
            counts[bucket] += number
    return counts


def quantiles(of: Sequence[Histogram], percent: int) -> list[int | None]:
    """A quantile of each."""
    return [quantile(one, percent) for one in of]


def hours(one: Bin, zone: str) -> float:
    """How long a bin is: days on which clocks are changed have 23 or 25 hours."""
    known = ZoneInfo(zone)
    start = datetime.combine(one.first, time(), known)
    end = datetime.combine(one.last + timedelta(days=1), time(), known)
    return (end.timestamp() - start.timestamp()) / 3600


def still_open(breakers: pa.Table) -> set[str]:
    """The breakers that were open at the end of the last day that tells of them."""
    last = {row["breaker"]: row["open_at_end"] for row in breakers.sort_by("day").to_pylist()}
    return {breaker for breaker, is_open in last.items() if is_open}
