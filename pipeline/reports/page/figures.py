"""A chart with its heading and the table that stands behind it, and tables that are charts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.reports.page import charts
from pipeline.reports.page.markup import Content, Html, tag

_NOTHING: Final = "Nothing in this period."


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under headings; the first `texts` columns are text, the others numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Content]]
    texts: int = 1
    more: str = ""
    """Where further rows are."""

    def html(self, label: str) -> Html:
        """As a table that scrolls by itself where it is too wide."""
        head = tag("tr", [tag("th", text, scope="col", class_=self._class(n)) for n, text in enumerate(self.headings)])
        body = [tag("tr", [self._cell(n, cell) for n, cell in enumerate(row)]) for row in self.rows]
        table = tag("table", tag("caption", label, class_="unseen"), tag("thead", head), tag("tbody", body))
        scrolled = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
        return tag("div", scrolled, tag("p", self.more, class_="note") if self.more else None)

    def _class(self, column: int) -> str | None:
        return None if column < self.texts else "number"

    def _cell(self, column: int, content: Content) -> Html:
        if column == 0:
            return tag("th", content, scope="row")
        return tag("td", content, class_=self._class(column))


def figure(
    title: str,
    chart: Html | None,
    grid: Grid,
    *,
    note: str = "",
    wide: bool = False,
) -> Html:
    """A chart, and its table, folded."""
    heading = tag("figcaption", tag("h3", title), tag("p", note, class_="note") if note else None)
    if chart is None:
        return tag("figure", heading, tag("p", _NOTHING, class_="empty"), class_="card")
    folded = tag("details", tag("summary", "Table"), grid.html(title))
    return tag("figure", heading, chart, folded, class_="card wide" if wide else "card")


@dataclass(frozen=True, slots=True)
class Ranked:
    """One line of a ranking."""

    name: Content
    parts: Sequence[tuple[float, str]]
    """Of its bar: values, and the classes of their colours."""
    value: str
    """Beside the bar."""
    rest: Sequence[str] = ()
    """Further columns."""


def ranking(
    title: str,
    headings: Sequence[str],
    ranked: Sequence[Ranked],
    *,
    note: str = "",
    top: float | None = None,
    series: Sequence[charts.Series] = (),
    wide: bool = False,
) -> Html:
    """Horizontal bars in a table; `top` is what a full bar stands for (default: the longest).

    `headings` are those of the name, of the value and of the further columns.
    """
    heading = tag("figcaption", tag("h3", title), tag("p", note, class_="note") if note else None)
    kind = "card wide" if wide else "card"
    if not ranked:
        return tag("figure", heading, tag("p", _NOTHING, class_="empty"), class_=kind)
    full = top or max(sum(value for value, _ in one.parts) for one in ranked) or 1
    named, *numbers = headings
    columns = [
        tag("th", named, scope="col"),
        tag("td", class_="bars"),
        *(tag("th", text, scope="col", class_="number") for text in numbers),
    ]
    rows = [_ranked(one, full) for one in ranked]
    caption = tag("caption", title, class_="unseen")
    table = tag("table", caption, tag("thead", tag("tr", columns)), tag("tbody", rows), class_="ranking")
    scrolled = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=title)
    return tag("figure", heading, charts.legend(series) if series else None, scrolled, class_=kind)


def _ranked(one: Ranked, full: float) -> Html:
    parts = [(value / full, colour) for value, colour in one.parts]
    return tag(
        "tr",
        tag("th", one.name, scope="row"),
        tag("td", charts.bar(parts), class_="bars"),
        [tag("td", text, class_="number") for text in (one.value, *one.rest)],
    )
