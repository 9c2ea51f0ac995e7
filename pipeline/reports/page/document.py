"""The page: its head, what is missing, the figures that matter most, the sections, and the files beside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

from pipeline.reports.page import summary, troubles, words, work
from pipeline.reports.page.figures import Grid
from pipeline.reports.page.markup import Html, name, tag
from pipeline.reports.page.window import Window
from pipeline.reports.report import Hole, Report

_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='3' fill='%232563c9'/%3E"
    "%3Cpath d='M4 12V8M8 12V4M12 12V6' stroke='white' stroke-width='2'/%3E%3C/svg%3E"
)
_SECTIONS: Final[Sequence[tuple[str, str, Callable[[Window], list[Html]]]]] = (
    ("jobs", "Jobs", work.jobs),
    ("times", "Times", work.durations),
    ("resources", "Attempts and bytes", work.resources),
    ("failures", "Failures", troubles.failures),
    ("letters", "Dead letters", troubles.letters),
    ("breakers", "Circuit breakers", troubles.breakers),
    ("flows", "Flows", work.flows),
)
_REASONS: Final = {
    "hole": "entries went before they were exported",
    "rewritten": "the stream was replaced by another",
}


def html(report: Report) -> str:
    """The whole document. It loads nothing, runs nothing, and says so in its policy."""
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    window = Window(report)
    body = tag("body", _header(report), tag("main", _main(window)), _footer(report))
    return f"<!doctype html>\n{tag('html', _head(report, style), body, lang='en')}\n"


def _head(report: Report, style: str) -> Html:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"FetchBox report, {_days(report)}"),
        tag("link", rel="icon", href=_ICON),
        tag("style", Html(style)),
    )


def _header(report: Report) -> Html:
    zone = report.period.zone
    created = report.created.astimezone(ZoneInfo(zone))
    days = f"{report.period.days:,} day{'s' if report.period.days > 1 else ''}"
    facts = [
        tag("li", days),
        tag("li", "Time zone ", tag("b", zone)),
        tag("li", "Tenant ", tag("b", name(report.tenant))) if report.tenant else tag("li", "All tenants"),
        tag("li", f"Made {words.day(created)} {created:%H:%M}"),
    ]
    links = [] if _empty(report) else [tag("a", title, href=f"#{key}") for key, title, _ in _SECTIONS]
    return tag(
        "header",
        tag("p", "FetchBox report", class_="brand"),
        tag("h1", _days(report)),
        tag("ul", facts, class_="facts"),
        tag("nav", links, aria_label="Sections") if links else None,
    )


def _main(window: Window) -> list[Html | None]:
    missing = [_holes(window.report), _gone(window.report)]
    if _empty(window.report):
        return [*missing, tag("p", "Nothing happened in this period, as far as the lake knows.", class_="empty card")]
    shown = [
        tag("section", tag("h2", title), tag("div", figures(window), class_="figures"), id=key)
        for key, title, figures in _SECTIONS
    ]
    return [*missing, summary.tiles(window), *shown]


def _empty(report: Report) -> bool:
    return not any(table.num_rows for table in report.tables.values())


def _holes(report: Report) -> Html | None:
    if not report.holes:
        return None
    missing = sum(hole.missing for hole in report.holes)
    uncounted = any(not hole.missing for hole in report.holes)
    count = f"{words.count(missing)} entries are missing" if missing else "Entries may be missing or differ"
    more = ", and more that nobody could count" if missing and uncounted else ""
    rows = [_hole(hole, report.period.zone) for hole in report.holes]
    grid = Grid(
        ["Table", "What happened", "Partition", "Epoch", "Missing", "After", "Until", "Found out"], rows, texts=2
    )
    return tag(
        "section",
        tag("h2", "The lake has gaps in this period"),
        tag("p", f"{count}{more}: the figures below do not have them."),
        grid.html("Gaps in the lake"),
        class_="holes",
        role="alert",
    )


def _gone(report: Report) -> Html | None:
    if not report.kept_from:
        return None
    kept = ", ".join(f"{table} from {words.day(day)}" for table, day in sorted(report.kept_from.items()))
    told = f"It keeps {kept}. What is older may be missing below."
    title = tag("h2", "The lake does not keep all of this period")
    return tag("section", title, tag("p", told), class_="holes gone", role="alert")


def _hole(hole: Hole, zone: str) -> list[str | Html]:
    return [
        name(hole.table),
        _REASONS.get(hole.reason, hole.reason),
        str(hole.partition),
        str(hole.epoch),
        words.count(hole.missing) if hole.missing else "unknown",
        _moment(hole.after, zone),
        _moment(hole.until, zone),
        _moment(hole.found, zone),
    ]


def _footer(report: Report) -> Html:
    rows = [
        [
            tag("code", table),
            words.count(rows.num_rows),
            tag("a", f"{table}.csv", href=f"{table}.csv"),
            tag("a", f"{table}.parquet", href=f"{table}.parquet"),
        ]
        for table, rows in report.tables.items()
    ]
    return tag(
        "footer",
        tag("h2", "Files"),
        tag("p", "Every table in full lies beside this page.", class_="note"),
        Grid(["Table", "Rows", "CSV", "Parquet"], rows).html("Files"),
        tag(
            "p", "Quantiles are upper edges of histogram buckets, at most 12.5 % above the exact value.", class_="note"
        ),
    )


def _days(report: Report) -> str:
    first, last = report.period.first, report.period.last
    if first == last:
        return words.weekday(first)
    start = words.day(first).removesuffix(f" {first.year}") if first.year == last.year else words.day(first)
    return f"{start} to {words.day(last)}"


def _moment(moment: datetime | None, zone: str) -> str:
    if moment is None:
        return words.NOTHING
    local = moment.astimezone(ZoneInfo(zone))
    return f"{words.day(local)} {local:%H:%M:%S}"
