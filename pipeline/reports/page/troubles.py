"""The sections about what went wrong: failures and their hosts, dead letters, circuit breakers."""

from __future__ import annotations

from pipeline.reports.page import charts, views, words
from pipeline.reports.page.charts import Series
from pipeline.reports.page.figures import Ranked, figure, ranking
from pipeline.reports.page.markup import Html, name, tag
from pipeline.reports.page.window import TOP, Window, by_bin, first, pair


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
    note = "Dead letters, and attempts that another followed. " + first(len(rows), "failures_daily")
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
        note="By the p95 of their attempts. " + first(len(timed), "hosts"),
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
        note="Attempts that failed, for good or not. " + first(len(failing), "hosts"),
        top=1.0,
    )


def letters(window: Window) -> list[Html]:
    """What lies in the dead letter queue, and for how long."""
    rows = [row for row in window.table("dead_letters").to_pylist() if row["unresolved"]]
    rows.sort(key=lambda row: (-(row["oldest_age_s"] or 0), row["code"], row["tenant"], row["job_type"]))
    ranked = [
        Ranked(
            [name(row["code"]), tag("span", " ", pair(row), class_="muted")],
            [((row["oldest_age_s"] or 0), "failed")],
            words.duration(_ms(row["oldest_age_s"])),
            (words.duration(_ms(row["p50_age_s"])), words.count(row["unresolved"]), words.count(row["letters"])),
        )
        for row in rows[:TOP]
    ]
    headings = ["Code, tenant and job type", "Oldest", "Median age", "Unresolved", "All"]
    note = "Unresolved at the end of the period, the oldest first. " + first(len(rows), "dead_letters")
    return [ranking("Age of dead letters", headings, ranked, note=note, wide=True)]


def breakers(window: Window) -> list[Html]:
    """How long something was left alone since it kept failing."""
    table = window.table("breakers_daily")
    open_ms = window.totals("breakers_daily", "open_ms")
    opened = window.totals("breakers_daily", "opened")
    drawn = [Series("open", "partial", window.a_day(open_ms))]
    chart = charts.columns(window.bins, drawn, words.DURATION, "Time that breakers were open") if any(open_ms) else None
    grid = by_bin(window, ["opened", "open"], [opened, open_ms], [words.count, words.duration])
    note = f"{window.mean}All breakers together, each once it has closed."
    over_time = figure("Breakers open", chart, grid, note=note)
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
        ranking("Longest open", headings, ranked, note="In the whole period. " + first(len(rows), "breakers_daily")),
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
