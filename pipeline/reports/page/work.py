"""The sections about what was done: jobs, their times, what was stored, flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipeline.reports.histogram import quantile
from pipeline.reports.page import charts, views, words
from pipeline.reports.page.charts import Series
from pipeline.reports.page.figures import Ranked, figure, ranking
from pipeline.reports.page.markup import Html, name
from pipeline.reports.page.window import TOP, Window, by_bin, first, pair, quantiles

_OUTCOMES: Final = ("completed", "partial", "failed", "canceled")
_ENDS: Final = {"completed": "completed", "failed": "failed", "cancelled": "canceled"}
"""How flow runs end, and the colour of each."""


def jobs(window: Window) -> list[Html]:
    """Outcomes, success, throughput, and who had the jobs."""
    totals = {column: window.totals("jobs_daily", column) for column in ("submitted", "ended", *_OUTCOMES)}
    series = [Series(column, column, window.a_day(totals[column])) for column in _OUTCOMES]
    grid = by_bin(window, ["submitted", "ended", *_OUTCOMES], [totals[n] for n in ("submitted", "ended", *_OUTCOMES)])
    some = any(totals["ended"]) or any(totals["submitted"])
    chart = charts.columns(window.bins, series, words.COUNT, "Jobs that ended, by outcome") if some else None
    outcomes = figure("Jobs by outcome", chart, grid, note=f"{window.mean}On the day of their end.", wide=True)
    return [outcomes, _success(window, totals), _throughput(window, totals["ended"]), _groups(window)]


def _success(window: Window, totals: dict[str, list[float]]) -> Html:
    counted = [sum(each) for each in zip(*(totals[n] for n in ("completed", "partial", "failed")), strict=True)]
    rates = [done / all_ if all_ else None for done, all_ in zip(totals["completed"], counted, strict=True)]
    series = [Series("success rate", "completed", rates)]
    chart = charts.shares(window.bins, series, "Success rate") if any(counted) else None
    grid = by_bin(window, ["counted", "success rate"], [counted, rates], [words.count, words.share])
    return figure("Success rate", chart, grid, note="Jobs completed, of those that were not canceled.")


def _throughput(window: Window, ended: Sequence[float]) -> Html:
    hours = [views.hours(one, window.report.period.zone) for one in window.bins]
    rates = [jobs / length for jobs, length in zip(ended, hours, strict=True)]
    chart = charts.columns(
        window.bins, [Series("jobs an hour", "plain", rates)], words.COUNT, "Jobs that ended an hour"
    )
    grid = by_bin(window, ["ended", "hours", "jobs an hour"], [ended, hours, rates])
    return figure("Throughput", chart if any(ended) else None, grid, note="Jobs that ended an hour.")


def _groups(window: Window) -> Html:
    columns = ("ended", *_OUTCOMES)
    rows = sorted(
        views.sums(window.table("jobs_daily"), ["tenant", "job_type"], columns),
        key=lambda row: (-row["ended"], row["tenant"], row["job_type"]),
    )
    ended = [row for row in rows if row["ended"]]
    runs = views.histograms(window.table("latency"), "run", ["tenant", "job_type"])
    ranked = [
        Ranked(
            pair(row),
            [(row[outcome], outcome) for outcome in _OUTCOMES],
            words.count(row["ended"]),
            (
                words.share(_rate(row)),
                words.duration(quantile(runs.get((row["tenant"], row["job_type"]), {}), 95)),
            ),
        )
        for row in ended[:TOP]
    ]
    headings = ["Tenant and job type", "Jobs", "Success", "Run time p95"]
    note = "Jobs that ended. " + first(len(ended), "jobs_daily")
    return ranking(
        "By tenant and job type",
        headings,
        ranked,
        note=note,
        series=[Series(outcome, outcome, ()) for outcome in _OUTCOMES],
        wide=True,
    )


def _rate(row: dict[str, Any]) -> float | None:
    counted = row["completed"] + row["partial"] + row["failed"]
    return row["completed"] / counted if counted else None


def durations(window: Window) -> list[Html]:
    """Queue wait, run time and attempts."""
    return [
        quantiles(window, "wait", "Queue wait", "From acceptance to the first attempt, of jobs that ended."),
        quantiles(
            window,
            "run",
            "Run time",
            "From the first attempt to the end, pauses between attempts too; of a replay alone.",
        ),
        quantiles(window, "attempt", "Attempts", "Each download or handler's run, retries too."),
    ]


def resources(window: Window) -> list[Html]:
    """What was stored."""
    totals = [window.totals("hosts_daily", column) for column in ("stored", "retries", "failed")]
    colours = ("completed", "partial", "failed")
    named = ("stored", "retried", "failed for good")
    series = [Series(n, c, window.a_day(t)) for n, c, t in zip(named, colours, totals, strict=True)]
    chart = charts.columns(window.bins, series, words.COUNT, "Attempts by outcome") if any(map(any, totals)) else None
    attempts = figure("Attempts by outcome", chart, by_bin(window, named, totals), note=f"{window.mean}Retries too.")
    sizes = window.totals("hosts_daily", "bytes")
    drawn = [Series("stored", "plain", window.a_day(sizes))]
    chart = charts.columns(window.bins, drawn, words.SIZE, "Bytes stored") if any(sizes) else None
    grid = by_bin(window, ["bytes"], [sizes], [words.size])
    return [attempts, figure("Bytes stored", chart, grid, note=f"{window.mean}In the object store.")]


def flows(window: Window) -> list[Html]:
    """Flow runs."""
    totals = {column: window.totals("flows_daily", column) for column in ("started", *_ENDS)}
    series = [Series(end, colour, window.a_day(totals[end])) for end, colour in _ENDS.items()]
    some = any(map(any, totals.values()))
    chart = charts.columns(window.bins, series, words.COUNT, "Runs that ended, by outcome") if some else None
    grid = by_bin(window, list(totals), list(totals.values()))
    over_time = figure("Runs by outcome", chart, grid, note=f"{window.mean}On the day of their end.")
    note = "From the first event of a run to its last, of those that ended."
    return [over_time, quantiles(window, "flow", "Run time of flows", note), _by_flow(window)]


def _by_flow(window: Window) -> Html:
    rows = views.sums(window.table("flows_daily"), ["flow_name"], list(_ENDS))
    times = views.histograms(window.table("latency"), "flow", ["host"])
    ended = sorted((-sum(row[end] for end in _ENDS), row["flow_name"], row) for row in rows)
    ranked = [
        Ranked(
            name(flow),
            [(row[end], colour) for end, colour in _ENDS.items()],
            words.count(-less),
            (words.count(row["failed"]), words.duration(quantile(times.get((flow,), {}), 95))),
        )
        for less, flow, row in ended[:TOP]
    ]
    headings = ["Flow", "Ended", "Failed", "Run time p95"]
    series = [Series(end, colour, ()) for end, colour in _ENDS.items()]
    return ranking("By flow", headings, ranked, note=first(len(rows), "flows_daily"), series=series, wide=True)
