"""What all sections have: the report, the bins of its days, and the tables behind its charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from pipeline.reports.page import bins, charts, views, words
from pipeline.reports.page.charts import Series
from pipeline.reports.page.figures import Grid, figure
from pipeline.reports.page.markup import Content, Html, name
from pipeline.reports.report import Report
from pipeline.reports.tables import QUANTILES

TOP: Final = 15
"""Rows of a ranking."""


@dataclass(frozen=True)
class Window:
    """A report and the bins that its days are shown in."""

    report: Report

    @cached_property
    def bins(self) -> Sequence[bins.Bin]:
        """Days, weeks or months."""
        return bins.bins(self.report.period)

    @property
    def unit(self) -> str:
        """What a bin is."""
        return self.bins[0].unit

    def table(self, table: str) -> pa.Table:
        """One of the report's."""
        return self.report.tables[table]

    def totals(self, table: str, column: str) -> list[float]:
        """Sums by bin."""
        return bins.totals(self.bins, views.daily(self.table(table), column))

    def a_day(self, totals: Sequence[float]) -> list[float]:
        """Means of the days of each bin: the same height for the same work, however many days a bin has."""
        return [total / one.days for total, one in zip(totals, self.bins, strict=True)]

    @property
    def mean(self) -> str:
        """What is to be said of values that are means of days."""
        return "" if self.unit == "day" else f"A day on average, by {self.unit}. "


def by_bin(
    window: Window, headings: Sequence[str], values: Sequence[Sequence[float | None]], show: Sequence[Any] = ()
) -> Grid:
    """The table behind a chart: a row for each bin."""
    shown = show or [words.count] * len(values)
    rows = [
        [one.title, *(tell(column[number]) for tell, column in zip(shown, values, strict=True))]
        for number, one in enumerate(window.bins)
    ]
    return Grid([window.unit.capitalize(), *(heading.capitalize() for heading in headings)], rows)


def quantiles(window: Window, metric: str, title: str, note: str) -> Html:
    """A metric of the histograms over time."""
    over = views.binned(window.bins, views.histograms(window.table("latency"), metric, ["day"]))
    series = [Series(f"p{percent}", f"p{percent}", views.quantiles(over, percent)) for percent in QUANTILES]
    counted = [float(sum(one.values())) for one in over]
    chart = charts.times(window.bins, series, title) if any(counted) else None
    show = [words.count, *[words.duration] * len(series)]
    grid = by_bin(window, ["counted", *(one.name for one in series)], [counted, *(one.values for one in series)], show)
    return figure(title, chart, grid, note=note)


def pair(row: dict[str, Any]) -> Content:
    """Whose jobs of which type."""
    return [name(row["tenant"], "(no tenant)"), " · ", name(row["job_type"])]


def first(rows: int, table: str) -> str:
    """Where the other rows of a ranking are; empty where there are none."""
    return f"The first {TOP} of {rows:,}; all of them are in {table}.csv. " if rows > TOP else ""
