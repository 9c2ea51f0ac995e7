"""The figures that matter most, each a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.reports.histogram import quantile
from pipeline.reports.page import views, words
from pipeline.reports.page.markup import Html, tag
from pipeline.reports.page.window import Window


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    name: str
    value: str
    more: str
    bad: bool = False
    """Whether somebody should look at it."""


def tiles(window: Window) -> Html:
    """All of them."""
    shown = [*_jobs(window), *_times(window), *_resources(window), *_troubles(window)]
    return tag("dl", [_tile(tile) for tile in shown], class_="tiles", aria_label="Summary")


def _tile(tile: Tile) -> Html:
    return tag(
        "div",
        tag("dt", tile.name),
        tag("dd", tile.value, class_="value"),
        tag("dd", tile.more, class_="more"),
        class_="tile bad" if tile.bad else "tile",
    )


def _jobs(window: Window) -> list[Tile]:
    table = window.table("jobs_daily")
    ended, done, partial, failed = (views.total(table, n) for n in ("ended", "completed", "partial", "failed"))
    counted = done + partial + failed
    hours = sum(views.hours(one, window.report.period.zone) for one in window.bins)
    return [
        Tile("Jobs ended", words.count(ended), f"{words.count(views.total(table, 'submitted'))} submitted"),
        Tile(
            "Success rate",
            words.share(done / counted if counted else None),
            f"{words.count(failed)} failed, {words.count(partial)} partial",
        ),
        Tile("Jobs an hour", words.count(ended / hours), _busiest(table)),
    ]


def _busiest(jobs: pa.Table) -> str:
    """The table knows the busiest minute of each tenant and type: that of all together may have had more."""
    peak = views.highest(jobs, "peak_per_minute")
    groups = len(views.sums(jobs, ["tenant", "job_type"], []))
    return f"{words.count(peak)}{' or more' if groups > 1 else ''} in the busiest minute"


def _times(window: Window) -> list[Tile]:
    return [_time(window, "wait", "Queue wait p95"), _time(window, "run", "Run time p95")]


def _time(window: Window, metric: str, title: str) -> Tile:
    counts = views.histograms(window.table("latency"), metric, []).get((), {})
    middle, high, top = (words.duration(quantile(counts, percent)) for percent in (50, 95, 99))
    return Tile(title, high, f"p50 {middle}, p99 {top}")


def _resources(window: Window) -> list[Tile]:
    jobs, hosts = window.table("jobs_daily"), window.table("hosts_daily")
    failed = views.total(jobs, "resources_failed")
    return [
        Tile(
            "Resources stored", words.count(views.total(jobs, "resources_completed")), f"{words.count(failed)} failed"
        ),
        Tile(
            "Bytes stored",
            words.size(views.total(hosts, "bytes")),
            f"{words.count(views.total(hosts, 'retries'))} attempts were retried",
        ),
    ]


def _troubles(window: Window) -> Sequence[Tile]:
    letters, breakers = window.table("dead_letters"), window.table("breakers_daily")
    unresolved, oldest = views.total(letters, "unresolved"), pc.max(letters["oldest_age_s"]).as_py()
    age = f"the oldest for {words.duration(oldest * 1000)}" if oldest is not None else "none waits"
    still = len(views.still_open(breakers))
    opened = f"opened {words.count(views.total(breakers, 'opened'))} times" + (f", {still} still open" if still else "")
    return [
        Tile("Dead letters", words.count(unresolved), age, bad=unresolved > 0),
        _flows(window),
        Tile("Breakers open", words.duration(views.total(breakers, "open_ms")), opened, bad=still > 0),
    ]


def _flows(window: Window) -> Tile:
    table = window.table("flows_daily")
    done, failed, cancelled = (views.total(table, outcome) for outcome in ("completed", "failed", "cancelled"))
    return Tile("Flow runs", words.count(done + failed + cancelled), f"{words.count(failed)} failed")
