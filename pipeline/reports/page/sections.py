"""The sections of the page, in order: each a heading and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from pipeline.reports.histogram import quantile
from pipeline.reports.page import bins, charts, views, words
from pipeline.reports.page.charts import Series
from pipeline.reports.page.figures import Grid, Ranked, figure, ranking
from pipeline.reports.page.markup import Content, Html, name, tag
from pipeline.reports.report import Report

TOP: Final = 15
"""Rows of a ranking."""
ROWS: Final = 100
"""Rows of a table that has no end of its own."""
OUTCOMES: Final = ("completed", "partial", "failed", "canceled")
_PERCENT: Final = (50, 95, 99)


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


def jobs(window: Window) -> list[Html]:
    """Outcomes, success, throughput, and who had the jobs."""
    totals = {column: window.totals("jobs_daily", column) for column in ("submitted", "ended", *OUTCOMES)}
    series = [Series(column, column, window.a_day(totals[column])) for column in OUTCOMES]
    grid = _by_bin(window, ["submitted", "ended", *OUTCOMES], [totals[n] for n in ("submitted", "ended", *OUTCOMES)])
    some = any(totals["ended"]) or any(totals["submitted"])
    chart = charts.columns(window.bins, series, words.COUNT, "Jobs that ended, by outcome") if some else None
    outcomes = figure("Jobs by outcome", chart, grid, note=f"{window.mean}On the day of their end.", wide=True)
    return [outcomes, _success(window, totals), _throughput(window, totals["ended"]), _groups(window)]


def _success(window: Window, totals: dict[str, list[float]]) -> Html:
    counted = [sum(each) for each in zip(*(totals[n] for n in ("completed", "partial", "failed")), strict=True)]
    rates = [done / all_ if all_ else None for done, all_ in zip(totals["completed"], counted, strict=True)]
    series = [Series("success rate", "completed", rates)]
    chart = charts.shares(window.bins, series, "Success rate") if any(counted) else None
    grid = _by_bin(window, ["counted", "success rate"], [counted, rates], [words.count, words.share])
    return figure("Success rate", chart, grid, note="Jobs completed, of those that were not canceled.")


def _throughput(window: Window, ended: Sequence[float]) -> Html:
    hours = [views.hours(one, window.report.period.zone) for one in window.bins]
    rates = [jobs / length for jobs, length in zip(ended, hours, strict=True)]
    chart = charts.columns(
        window.bins, [Series("jobs an hour", "plain", rates)], words.COUNT, "Jobs that ended an hour"
    )
    grid = _by_bin(window, ["ended", "hours", "jobs an hour"], [ended, hours, rates])
    return figure("Throughput", chart if any(ended) else None, grid, note="Jobs that ended an hour.")


def _groups(window: Window) -> Html:
    columns = ("ended", *OUTCOMES)
    rows = sorted(
        views.sums(window.table("jobs_daily"), ["tenant", "job_type"], columns),
        key=lambda row: (-row["ended"], row["tenant"], row["job_type"]),
    )
    ended = [row for row in rows if row["ended"]]
    runs = views.histograms(window.table("latency"), "run", ["tenant", "job_type"])
    ranked = [
        Ranked(
            _pair(row),
            [(row[outcome], outcome) for outcome in OUTCOMES],
            words.count(row["ended"]),
            (
                words.share(_rate(row)),
                words.duration(quantile(runs.get((row["tenant"], row["job_type"]), {}), 95)),
            ),
        )
        for row in ended[:TOP]
    ]
    headings = ["Tenant and job type", "Jobs", "Success", "Run time p95"]
    note = "Jobs that ended. " + _first(len(ended), "jobs_daily")
    return ranking("By tenant and job type", headings, ranked, note=note, series=_keys(OUTCOMES), wide=True)


def durations(window: Window) -> list[Html]:
    """Queue wait, run time and attempts."""
    return [
        _quantiles(window, "wait", "Queue wait", "From QUEUED to IN_PROGRESS, of jobs that ended."),
        _quantiles(window, "run", "Run time", "From IN_PROGRESS to the end."),
        _quantiles(window, "attempt", "Attempts", "Each download or handler's run, retries too."),
    ]


def _quantiles(window: Window, metric: str, title: str, note: str) -> Html:
    over = views.binned(window.bins, views.histograms(window.table("latency"), metric, ["day"]))
    series = [Series(f"p{percent}", f"p{percent}", views.quantiles(over, percent)) for percent in _PERCENT]
    counted = [float(sum(one.values())) for one in over]
    chart = charts.times(window.bins, series, title) if any(counted) else None
    show = [words.count, *[words.duration] * len(series)]
    grid = _by_bin(window, ["counted", *(one.name for one in series)], [counted, *(one.values for one in series)], show)
    return figure(title, chart, grid, note=note)


def resources(window: Window) -> list[Html]:
    """What was stored."""
    totals = [window.totals("hosts_daily", column) for column in ("stored", "retries", "failed")]
    colours = ("completed", "partial", "failed")
    named = ("stored", "retried", "failed for good")
    series = [Series(n, c, window.a_day(t)) for n, c, t in zip(named, colours, totals, strict=True)]
    chart = charts.columns(window.bins, series, words.COUNT, "Attempts by outcome") if any(map(any, totals)) else None
    attempts = figure("Attempts by outcome", chart, _by_bin(window, named, totals), note=f"{window.mean}Retries too.")
    sizes = window.totals("hosts_daily", "bytes")
    drawn = [Series("stored", "plain", window.a_day(sizes))]
    chart = charts.columns(window.bins, drawn, words.SIZE, "Bytes stored") if any(sizes) else None
    grid = _by_bin(window, ["bytes"], [sizes], [words.size])
    return [attempts, figure("Bytes stored", chart, grid, note=f"{window.mean}In the object store.")]


def failures(window: Window) -> list[Html]:
    """Codes, and the hosts behind them."""
    rows = views.sums(window.table("failures_daily"), ["code"], ["letters", "retries"])
    rows.sort(key=lambda row: (-row["letters"], -row["retries"], row["code"]))
    ranked = [
        Ranked(
            name(row["code"]),
            [(row["letters"], "failed"), (row["retries"], "partial")],
            words.count(row["letters"]),
            (words.count(row["retries"]),),
        )
        for row in rows[:TOP]
    ]
    series = [Series("dead letters", "failed", ()), Series("retries", "partial", ())]
    note = "Dead letters, and attempts that another followed. " + _first(len(rows), "failures_daily")
    codes = ranking("Failure codes", ["Code", "Dead letters", "Retries"], ranked, note=note, series=series, wide=True)
    return [codes, _slowest(window), _failing(window)]


def _slowest(window: Window) -> Html:
    hosts = window.table("hosts").sort_by("slowest").to_pylist()
    timed = [row for row in hosts if row["duration_p95_ms"] is not None]
    ranked = [
        Ranked(
            name(row["host"]),
            [(row["duration_p95_ms"], "p95")],
            words.duration(row["duration_p95_ms"]),
            (words.duration(row["duration_p50_ms"]), words.count(row["attempts"])),
        )
        for row in timed[:TOP]
    ]
    return ranking(
        "Slowest hosts",
        ["Host", "p95", "p50", "Attempts"],
        ranked,
        note="By the p95 of their attempts. " + _first(len(timed), "hosts"),
    )


def _failing(window: Window) -> Html:
    hosts = window.table("hosts").sort_by("failing").to_pylist()
    failing = [row for row in hosts if row["failure_rate"]]
    ranked = [
        Ranked(
            name(row["host"]),
            [(row["failure_rate"], "failed")],
            words.share(row["failure_rate"]),
            (words.count(row["failed"]), words.count(row["attempts"])),
        )
        for row in failing[:TOP]
    ]
    headings = ["Host", "Failing", "For good", "Attempts"]
    return ranking(
        "Most failing hosts",
        headings,
        ranked,
        note="Attempts that failed, for good or not. " + _first(len(failing), "hosts"),
        top=1.0,
    )


def letters(window: Window) -> list[Html]:
    """What lies in the dead letter queue, and for how long."""
    rows = [row for row in window.table("dead_letters").to_pylist() if row["unresolved"]]
    rows.sort(key=lambda row: (-(row["oldest_age_s"] or 0), row["code"], row["tenant"], row["job_type"]))
    ranked = [
        Ranked(
            [name(row["code"]), tag("span", " ", _pair(row), class_="muted")],
            [((row["oldest_age_s"] or 0), "failed")],
            words.duration(_ms(row["oldest_age_s"])),
            (words.duration(_ms(row["p50_age_s"])), words.count(row["unresolved"]), words.count(row["letters"])),
        )
        for row in rows[:TOP]
    ]
    headings = ["Code, tenant and job type", "Oldest", "Median age", "Unresolved", "All"]
    note = "Unresolved at the end of the period, the oldest first. " + _first(len(rows), "dead_letters")
    return [ranking("Age of dead letters", headings, ranked, note=note, wide=True)]


def breakers(window: Window) -> list[Html]:
    """How long something was left alone since it kept failing."""
    table = window.table("breakers_daily")
    open_ms = window.totals("breakers_daily", "open_ms")
    opened = window.totals("breakers_daily", "opened")
    drawn = [Series("open", "partial", window.a_day(open_ms))]
    chart = charts.columns(window.bins, drawn, words.DURATION, "Time that breakers were open") if any(open_ms) else None
    grid = _by_bin(window, ["opened", "open"], [opened, open_ms], [words.count, words.duration])
    over_time = figure("Breakers open", chart, grid, note=f"{window.mean}All breakers together.")
    rows = views.sums(table, ["breaker"], ["open_ms", "opened"])
    rows.sort(key=lambda row: (-row["open_ms"], -row["opened"], row["breaker"]))
    still = views.still_open(table)
    ranked = [
        Ranked(
            name(row["breaker"]),
            [(row["open_ms"], "partial")],
            words.duration(row["open_ms"]),
            (words.count(row["opened"]), "open" if row["breaker"] in still else "closed"),
        )
        for row in rows[:TOP]
    ]
    headings = ["Breaker", "Open for", "Opened", "At the end"]
    return [
        over_time,
        ranking("Longest open", headings, ranked, note="In the whole period. " + _first(len(rows), "breakers_daily")),
    ]


def flows(window: Window) -> list[Html]:
    """Runs of flows."""
    ends = ("completed", "failed", "cancelled")
    totals = {column: window.totals("flows_daily", column) for column in ("started", *ends)}
    colours = ("completed", "failed", "canceled")
    series = [Series(end, colour, window.a_day(totals[end])) for end, colour in zip(ends, colours, strict=True)]
    some = any(map(any, totals.values()))
    chart = charts.columns(window.bins, series, words.COUNT, "Runs that ended, by outcome") if some else None
    grid = _by_bin(window, list(totals), list(totals.values()))
    over_time = figure("Runs by outcome", chart, grid, note=f"{window.mean}On the day of their end.")
    rows = views.sums(window.table("flows_daily"), ["flow_name"], ["started", *ends])
    slowest = views.peaks(window.table("flows_daily"), "flow_name", "run_p95_ms")
    rows.sort(key=lambda row: (-sum(row[end] for end in ends), row["flow_name"]))
    ranked = [
        Ranked(
            name(row["flow_name"]),
            [(row[end], colour) for end, colour in zip(ends, colours, strict=True)],
            words.count(sum(row[end] for end in ends)),
            (words.count(row["failed"]), words.duration(slowest.get(row["flow_name"]))),
        )
        for row in rows[:TOP]
    ]
    headings = ["Flow", "Ended", "Failed", "p95, slowest day"]
    return [
        over_time,
        ranking("By flow", headings, ranked, note="Runs that have ended. " + _first(len(rows), "flows_daily")),
    ]


def _by_bin(
    window: Window, headings: Sequence[str], values: Sequence[Sequence[float | None]], show: Sequence[Any] = ()
) -> Grid:
    """The table behind a chart: a row for each bin."""
    shown = show or [words.count] * len(values)
    rows = [
        [one.title, *(tell(column[number]) for tell, column in zip(shown, values, strict=True))]
        for number, one in enumerate(window.bins)
    ]
    return Grid([window.unit.capitalize(), *(heading.capitalize() for heading in headings)], rows)


def _pair(row: dict[str, Any]) -> Content:
    return [name(row["tenant"], "(no tenant)"), " · ", name(row["job_type"])]


def _rate(row: dict[str, Any]) -> float | None:
    counted = row["completed"] + row["partial"] + row["failed"]
    return row["completed"] / counted if counted else None


def _keys(named: Sequence[str]) -> list[Series]:
    return [Series(one, one, ()) for one in named]


def _first(rows: int, table: str) -> str:
    return f"The first {TOP} of {rows:,}; all of them are in {table}.csv. " if rows > TOP else ""


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
