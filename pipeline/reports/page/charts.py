"""Charts as SVG without a fixed width: places across are shares of what there is, heights are pixels.

They follow the width of the window or the paper, and their text keeps its size. Colours and fonts are those of
`style.css`. What a chart shows stands in a table beside it, so to assistive technology it is one picture with a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pipeline.reports.page import scales, words
from pipeline.reports.page.bins import Bin
from pipeline.reports.page.markup import Content, Html, join, tag

HEIGHT: Final = 190
"""Of the plot, in pixels, without its axes."""
_WIDEST: Final = 9.0
"""The widest column, in percent."""
_FILLED: Final = 0.74
"""How much of its bin a column fills."""
_LEAST: Final = 2.0
"""The height of the smallest value that is not zero: one failure in a million is seen."""
_MARKS: Final = 7
_APART: Final = 13.0
"""Pixels between the names at the ends of lines."""
_DOTTED: Final = 31
"""Up to so many bins lines have dots."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Series:
    """One value a bin, None where there is none; `colour` is one of the classes of `style.css`."""

    name: str
    colour: str
    values: Values


@dataclass(frozen=True, slots=True)
class _Axis:
    """The vertical one: marks with their text, and where a value lies, in pixels from above."""

    marks: Sequence[tuple[float, str]]
    place: Callable[[float], float]


def columns(over: Sequence[Bin], series: Sequence[Series], unit: words.Unit, label: str) -> Html:
    """Stacked columns from zero, the first series at the bottom."""
    sums = [sum(one.values[number] or 0 for one in series) for number in range(len(over))]
    axis = _linear(unit.ticks(max(sums, default=0)), unit.show)
    bands = [
        _band(number, over, series, unit.show, _column(number, len(over), series, axis)) for number in range(len(over))
    ]
    return join([legend(series), _plot(over, axis, bands, label, kind="columns")])


def times(over: Sequence[Bin], series: Sequence[Series], label: str) -> Html:
    """Lines of durations in ms, on an axis of their logarithms: a wait may take a moment or a day."""
    known = [max(value, 1) for one in series for value in one.values if value is not None]
    marks = scales.decades(min(known, default=1), max(known, default=1))
    low, high = math.log(marks[0]), math.log(marks[-1])
    return _lines(over, series, _axis(marks, low, high, words.duration, lambda ms: math.log(max(ms, 1))), label)


def shares(over: Sequence[Bin], series: Sequence[Series], label: str) -> Html:
    """Lines of shares; the axis ends at 100 % and begins at a round share below all of them."""
    marks = scales.shares(min((value for one in series for value in one.values if value is not None), default=0))
    return _lines(over, series, _axis(marks, marks[0], marks[-1], words.share, float), label, unit=words.share)


def bar(parts: Sequence[tuple[float, str]]) -> Html:
    """One horizontal bar: shares of the width, each with the class of its colour."""
    done, drawn = 0.0, []
    for part, colour in parts:
        drawn.append(tag("rect", x=_percent(100 * done), width=_percent(100 * part), height="100%", class_=colour))
        done += part
    return tag("svg", drawn, class_="bar", aria_hidden="true")


def legend(series: Sequence[Series], *, line: bool = False) -> Html:
    """Which colour, or which line, is what."""
    keys = [tag("li", _key(one.colour, line=line), one.name) for one in series]
    return tag("ul", keys, class_="legend", aria_hidden="true")


def _key(colour: str, *, line: bool) -> Html:
    if line:
        return tag("svg", tag("polyline", points="1,6 23,6", class_=colour), width=24, height=12)
    return tag("svg", tag("rect", width=12, height=12, class_=colour), width=12, height=12)


def _lines(
    over: Sequence[Bin],
    series: Sequence[Series],
    axis: _Axis,
    label: str,
    unit: Callable[[float | None], str] = words.duration,
) -> Html:
    dots = len(over) <= _DOTTED
    bands = [
        _band(number, over, series, unit, [_dots(number, len(over), series, axis) if dots else None])
        for number in range(len(over))
    ]
    drawn = [_polylines(one, axis) for one in series]
    lines = tag(
        "svg",
        drawn,
        viewBox=f"0 0 100 {HEIGHT}",
        preserveAspectRatio="none",
        width="100%",
        height=HEIGHT,
        class_="lines",
    )
    ends = _ends(series, axis) if len(series) > 1 else None
    return join([legend(series, line=True), _plot(over, axis, [lines, *bands, ends], label, kind="of-lines")])


def _plot(over: Sequence[Bin], axis: _Axis, content: Content, label: str, kind: str) -> Html:
    grid = [
        tag("line", x1=0, x2="100%", y1=_pixels(y), y2=_pixels(y), class_="zero" if y == HEIGHT else "grid")
        for y, _ in axis.marks
    ]
    names = [tag("text", text, x=-8, y=_pixels(y + 4), class_="end") for y, text in axis.marks]
    return tag("svg", grid, names, _days(over), content, class_=f"plot {kind}", role="img", aria_label=label)


def _days(over: Sequence[Bin]) -> list[Html]:
    """A few bins by name; every other one of them goes where it is narrow."""
    step = math.ceil(len(over) / _MARKS)
    shown = []
    for place, number in enumerate(range(0, len(over), step)):
        classes = "day minor" if place % 2 else "day"
        text = _short_label(over, number, step)
        shown.append(tag("text", text, x=_percent(_middle(number, len(over))), y=HEIGHT + 18, class_=classes))
    return shown


def _short_label(over: Sequence[Bin], number: int, step: int) -> str:
    """Without the year where it is that of the name before."""
    one = over[number]
    if one.unit == "month":
        return one.label
    told = number == 0 or over[number - step].first.year != one.first.year
    return f"{one.first.day} {one.first:%b}" + (
        f" {one.first.year}" if told and over[0].first.year != over[-1].first.year else ""
    )


def _band(
    number: int, over: Sequence[Bin], series: Sequence[Series], show: Callable[[float | None], str], drawn: Content
) -> Html:
    """What belongs to a bin, and the line of text above the plot that is seen while a pointer is on it."""
    width = 100 / len(over)
    told = " · ".join(f"{one.name} {show(one.values[number])}" for one in series if one.values[number] is not None)
    return tag(
        "g",
        tag("rect", x=_percent(number * width), width=_percent(width), y=0, height=HEIGHT, class_="hit"),
        drawn,
        tag("text", f"{over[number].title}: {told or 'nothing'}", x="100%", y=-12, class_="told"),
        class_="band",
    )


def _column(number: int, bins: int, series: Sequence[Series], axis: _Axis) -> list[Html]:
    width = min(100 / bins * _FILLED, _WIDEST)
    left, bottom, drawn = _middle(number, bins) - width / 2, float(HEIGHT), []
    for one in series:
        value = one.values[number]
        if value:
            height = max(HEIGHT - axis.place(value), _LEAST)
            bottom -= height
            sizes = {"y": _pixels(bottom), "height": _pixels(height)}
            drawn.append(tag("rect", x=_percent(left), width=_percent(width), class_=one.colour, **sizes))
    return drawn


def _dots(number: int, bins: int, series: Sequence[Series], axis: _Axis) -> list[Html]:
    x = _percent(_middle(number, bins))
    known = [(one.colour, one.values[number]) for one in series]
    return [
        tag("circle", cx=x, cy=_pixels(axis.place(value)), r=3, class_=colour)
        for colour, value in known
        if value is not None
    ]


def _polylines(one: Series, axis: _Axis) -> list[Html]:
    """A line for each stretch without a gap; one bin alone is a short one."""
    bins = len(one.values)
    points = [None if v is None else (_middle(n, bins), axis.place(v)) for n, v in enumerate(one.values)]
    stretches: list[list[tuple[float, float]]] = []
    for before, point in pairwise([None, *points]):
        if point is not None:
            if before is None:
                stretches.append([])
            stretches[-1].append(point)
    return [_polyline(stretch, one.colour, 100 / bins) for stretch in stretches]


def _polyline(stretch: Sequence[tuple[float, float]], colour: str, width: float) -> Html:
    if len(stretch) == 1:
        ((x, y),) = stretch
        stretch = [(x - width / 4, y), (x + width / 4, y)]
    points = " ".join(f"{x:.2f},{y:.1f}" for x, y in stretch)
    return tag("polyline", points=points, class_=colour, vector_effect="non-scaling-stroke")


def _ends(series: Sequence[Series], axis: _Axis) -> list[Html]:
    """The names of lines behind their last values, apart from each other."""
    last = [(axis.place(value), one) for one in series if (value := _last(one.values)) is not None]
    named, above = [], -math.inf
    for y, one in sorted(last, key=lambda pair: pair[0]):
        above = max(y, above + _APART)
        named.append(tag("text", one.name, x="100%", dx=6, y=_pixels(above + 4), class_=f"name {one.colour}"))
    return named


def _last(values: Values) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _linear(ticks: Sequence[float], show: Callable[[float | None], str]) -> _Axis:
    return _axis(ticks, 0, ticks[-1], show, float)


def _axis(
    marks: Sequence[float],
    low: float,
    high: float,
    show: Callable[[float | None], str],
    scaled: Callable[[float], float],
) -> _Axis:
    def place(value: float) -> float:
        return HEIGHT * (1 - (scaled(value) - low) / (high - low))

    return _Axis([(place(mark), show(mark)) for mark in marks], place)


def _middle(number: int, bins: int) -> float:
    return (number + 0.5) * 100 / bins


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def _pixels(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
