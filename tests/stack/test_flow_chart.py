"""How runs are drawn: widths, shapes, colours, and what has not come to its end."""

import io
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from rich.console import Console

from cli.flows import words
from cli.flows.chart import Chart
from cli.flows.course import RunCourse
from fetchbox.flow.v1.event_pb2 import Event
from flows.model.codec import iso
from tests.examples import most
from tests.flows.histories import History, anything, legal

BEGAN = 1_764_324_000_000
STEPS = ["fetch", "ask", "count"]
ATTEMPT = {"stepRunId": "r1", "attempt": 1}
AGAIN = {"stepRunId": "r2", "attempt": 2}


def event(second: float, kind: str, data: dict[str, Any], **meta: Any) -> Event:
    """An event of a timeline."""
    step = {"stepKey": data["stepKey"]} if "stepKey" in data else {}
    meta = {"flowId": "f", **step, **meta}
    return Event(
        ts=iso(BEGAN + int(second * 1000)),
        id=f"{second * 1000:.0f}-0",
        kind=kind,
        data=json.dumps(data).encode(),
        meta=json.dumps(meta).encode(),
    )


HISTORY = [
    event(0, "flow.start", {"flowName": "catalogue"}),
    event(0, "step.scheduled", {"stepKey": "fetch"}, **ATTEMPT),
    event(10, "step.attempt.started", {"stepKey": "fetch"}, **ATTEMPT),
    event(20, "step.attempt.failed", {"stepKey": "fetch", "error": {"code": "DOWNLOAD_DNS"}}, **ATTEMPT),
    event(20, "step.retry.scheduled", {"stepKey": "fetch", "backoffMs": 10_000}, **AGAIN),
    event(30, "step.attempt.started", {"stepKey": "fetch"}, **AGAIN),
    event(40, "step.attempt.completed", {"stepKey": "fetch"}, **AGAIN),
    event(40, "step.completed", {"stepKey": "fetch"}),
    event(40, "step.await.scheduled", {"stepKey": "ask", "reason": "manual", "token": "t"}),
]
ENDING = [
    event(90, "step.await.triggered", {"stepKey": "ask", "by": "manual", "token": "t"}),
    event(90, "step.completed", {"stepKey": "ask"}),
    event(100, "flow.cancelled", {"reason": "enough"}),
]


def drawn(course: RunCourse, now: float, width: int = 80, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(Chart(course, STEPS, BEGAN + int(now * 1000)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def course_of(events: list[Event]) -> RunCourse:
    course = RunCourse()
    for one in events:
        course.told(one)
    return course


def test_a_run_that_goes_on_is_drawn_up_to_now() -> None:
    head, fetch, ask, count, legend = drawn(course_of(HISTORY), 80)
    assert head == "catalogue f  running  1 min 20 s"
    bar = 80 - 5 - 9 - 11 - 6
    shapes = [(found[0][0], len(found[0])) for found in re.finditer(r"([─▓╌█░])\1*", fetch)]
    assert [shape for shape, _ in shapes] == ["─", "▓", "╌", "█"]
    assert all(abs(length - bar / 8) <= 1 for _, length in shapes), shapes
    (wait,) = re.findall("░+", ask)
    assert abs(len(wait) - bar / 2) <= 1
    assert "waiting" in ask
    assert ask.endswith("40.0 s")
    assert re.fullmatch(r"count +pending", count)
    assert legend == "█ attempt   ▓ failed attempt   ░ gate   ─ queue   ╌ backoff"


def test_the_end_of_a_run_ends_all_of_it() -> None:
    head, _, ask, count, _ = drawn(course_of([*HISTORY, *ENDING]), 5000)
    assert head == "catalogue f  cancelled  1 min 40 s"
    assert (ask.split()[1], count.split()[1]) == ("completed", "cancelled")
    assert ask.endswith("50.0 s")


def test_what_is_late_or_of_another_gate_changes_nothing() -> None:
    late = event(50, "step.attempt.started", {"stepKey": "fetch"}, **ATTEMPT)
    other = event(50, "step.await.triggered", {"stepKey": "ask", "by": "manual", "token": "another"})
    assert drawn(course_of([*HISTORY, late, other]), 80) == drawn(course_of(HISTORY), 80)


@pytest.mark.parametrize("width", [20, 40, 200])
def test_no_line_is_wider_than_the_terminal_unless_that_is_too_narrow_for_any(width: int) -> None:
    short = [
        event(0, "flow.start", {"flowName": "f"}),
        event(0, "step.scheduled", {"stepKey": "fetch"}, **ATTEMPT),
        event(0.1, "step.attempt.started", {"stepKey": "fetch"}, **ATTEMPT),
        event(0.2, "step.attempt.completed", {"stepKey": "fetch"}, **ATTEMPT),
        event(0.2, "step.completed", {"stepKey": "fetch"}),
        event(0.2, "step.await.scheduled", {"stepKey": "ask", "reason": "manual", "token": "t"}),
    ]
    lines = drawn(course_of(short), 40_000, width)
    assert all(len(line) <= width for line in lines), lines
    if width > 20:
        assert "─█" in lines[1], "what was short is seen beside a wait of hours"


def test_without_colours_and_with_ascii_alone_it_says_the_same() -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80)
    console.print(Chart(course_of(HISTORY), STEPS, BEGAN + 80_000))
    console.file.flush()
    text = console.file.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert re.search(r"fetch  completed  -+x+~+#+ ", text)
    assert re.search(r"ask +waiting +:+", text)


def test_colours_are_those_of_the_words() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(Chart(course_of(HISTORY), STEPS, BEGAN + 80_000))
    assert isinstance(console.file, io.StringIO)
    seen = console.file.getvalue()
    assert re.search("\x1b\\[31m▓+", seen)
    assert re.search("\x1b\\[33m░+", seen)
    assert re.search("\x1b\\[32m█+", seen)


@pytest.mark.parametrize(
    ("kind", "data", "meta", "said"),
    [
        ("flow.start", {"flowName": "f"}, {"tags": ["a", "b"]}, "f #a #b"),
        ("flow.complete", {}, {}, ""),
        ("flow.complete", {"resultKey": "flows/f/r.json"}, {}, "result in flows/f/r.json"),
        ("flow.failed", {"error": "tired"}, {}, '"tired"'),
        ("flow.cancelled", {"reason": "enough"}, {}, "enough"),
        ("step.scheduled", {"stepKey": "s", "backoffMs": 2500}, {}, "s  in 2.5 s"),
        ("step.retry.scheduled", {"stepKey": "s", "reason": "X", "backoffMs": 1}, {}, "s  in 0.0 s X"),
        ("step.attempt.started", {"stepKey": "s"}, {"attempt": 2, "jobId": "j"}, "s  attempt 2, job j"),
        ("step.completed", {"stepKey": "s", "result": ["é" * 300]}, {}, '["' + "é" * 198 + "…"),
        ("runner.log", {"level": "info", "msg": "a\nb\x1b[2J", "meta": {"n": 1}}, {}, "info  a b [2J n=1"),
        ("step.await.scheduled", {"stepKey": "s", "reason": "time", "until": "2026-11-28T10:00:00Z"}, {}, "10:00:00Z"),
        ("step.await.timeout", {"stepKey": "s", "token": "t"}, {}, "s"),
        ("step.await.cancelled", {"stepKey": "s", "token": "t"}, {}, "s"),
        ("order.paid", {"amount": 7}, {}, '{"amount": 7}'),
        ("order.paid", {}, {}, "order.paid"),
    ],
)
def test_an_event_is_one_line(kind: str, data: dict[str, Any], meta: dict[str, Any], said: str) -> None:
    line = words.line(event(0, kind, data, **meta))
    assert line.startswith(f"10:00:00.000  {kind}")
    assert line.endswith(said)
    assert line.isprintable()


@settings(max_examples=most(60), deadline=None)
@given(legal())
def test_the_phases_of_any_legal_run_follow_each_other(history: History) -> None:
    course = course_of(history.events)
    for key, phases in course.phases.items():
        ends = [phase.ended for phase in phases[:-1]]
        assert all(end is not None and end <= later.begun for end, later in zip(ends, phases[1:], strict=True))
        attempts = [phase for phase in phases if phase.status == "running"]
        assert len(attempts) == course.state.steps[key].tries
        if course.is_over or course.state.steps[key].completed_at:
            assert all(phase.ended is not None for phase in phases)
    assert len(drawn(course, 0, 100)) >= 2


@settings(max_examples=most(60), deadline=None)
@given(anything())
def test_whatever_others_have_written_is_shown(events: list[Event]) -> None:
    assert all(words.line(one).isprintable() for one in events)
    drawn(course_of(events), 0)


def test_how_long_it_took() -> None:
    told = [words.duration(ms) for ms in (-5, 0, 59_949, 60_000, 3_599_000, 3_600_000, 90_000_000)]
    assert told == ["0.0 s", "0.0 s", "59.9 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"]
