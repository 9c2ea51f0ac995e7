"""The fold of a timeline: pure, total, and deaf to what comes late or again."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from histories import FLOW_ID, History, anything, as_published, legal, numbered, shuffled, with_echoes
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import views
from flows.model.checks import check
from flows.model.events import draft
from flows.model.state import apply, attempt_open, ended, fold, over, released, state_of
from flows.model.types import STAMP, FlowState, StepState

FINISHED = ("completed", "failed")


def event(kind: str, step: str = "", /, *, run_id: str = "", attempt: int = 0, **data: Any) -> Event:
    meta: dict[str, Any] = {"flowId": FLOW_ID}
    if step:
        meta["stepKey"] = data["stepKey"] = step
    if run_id:
        meta |= {"stepRunId": run_id, "attempt": attempt, "jobId": f"job-{run_id}", "queue": "jobs:stream"}
    return draft(kind, data, meta)


START = event("flow.start", flowName="f")
FAILED = event("step.attempt.failed", "a", run_id="r1", attempt=1, error={"code": "X"})
RETRY = event("step.retry.scheduled", "a", run_id="r2", attempt=2, backoffMs=500)


def after(*events: Event) -> FlowState:
    return state_of(numbered([START, *events]))


def began(step: str = "a") -> list[Event]:
    return [
        event("step.scheduled", step, run_id="r1", attempt=1),
        event("step.attempt.started", step, run_id="r1", attempt=1),
    ]


def gated(reason: str = "webhook", **data: Any) -> Event:
    return event("step.await.scheduled", "a", reason=reason, token="t", **data)


def settled(how: str, **data: Any) -> Event:
    return event(f"step.await.{how}", "a", token="t", **data)


def without_times(state: FlowState) -> dict[str, Any]:
    """What counts in a state: all but when its last events came."""
    steps = {key: replace(step, last_event_at="") for key, step in state.steps.items()}
    return {"run": replace(state, last_event_at="", last_id="", steps={}), "steps": steps}


@settings(deadline=None)
@given(legal())
def test_the_histories_of_these_tests_are_well_formed(history: History):
    for record in history.events:
        check(as_published(record), 65_536)


@settings(deadline=None)
@given(st.one_of(shuffled(), anything()))
def test_folding_any_events_changes_no_state_that_was_given_and_equals_applying_them(events: list[Event]):
    applied = FlowState()
    for record in events:
        given_state = deepcopy(applied)
        folded = fold(applied, record)
        assert applied == given_state
        apply(applied, record)
        assert applied == folded
        views.snapshot(applied)
        views.steps(applied)


@pytest.mark.req("R003-1.2.04", "R003-1.2.08", "R003-1.2.09", "R003-1.2.15")
@settings(deadline=None)
@given(with_echoes())
def test_events_that_come_again_or_late_change_nothing_that_counts(pair: tuple[History, list[Event]]):
    history, echoed = pair
    expected, state = without_times(state_of(numbered(history.events))), without_times(state_of(echoed))
    for kept in (expected, state):  # the times of what counts are those of its first record, wherever that stands
        kept["run"] = replace(kept["run"], started_at="", completed_at="")
        kept["steps"] = {key: timeless(step) for key, step in kept["steps"].items()}
    assert state == expected


def timeless(step: StepState) -> StepState:
    gate = step.gate and replace(step.gate, placed_at="", settled_at="")
    return replace(step, gate=gate, scheduled_at="", started_at="", completed_at="")


@pytest.mark.req("R003-1.2.08", "R003-1.2.09")
@settings(deadline=None)
@given(shuffled())
def test_a_step_that_is_over_stays_as_it_is(events: list[Event]):
    state = FlowState()
    for record in events:
        before, state = state, fold(state, record)
        for key, step in before.steps.items():
            if step.status in FINISHED:
                now = state.steps[key]
                logs = {"logs": now.logs, "log_level": now.log_level, "last_event_at": now.last_event_at}
                assert now == replace(step, **logs)


@pytest.mark.req("R003-1.2.02")
@settings(deadline=None)
@given(shuffled())
def test_after_the_end_of_a_run_only_log_lines_count(events: list[Event]):
    state = FlowState()
    for record in events:
        before, state = state, fold(state, record)
        if ended(before) and record.kind != "runner.log":
            assert state == before
        if ended(before):
            assert state.status == before.status


@pytest.mark.req("R003-1.2.01")
def test_a_run_begins_with_its_start_and_begins_once():
    other = draft("flow.start", {"flowName": "g", "input": 2}, {"flowId": "other"}, "q")
    first = draft(
        "flow.start", b'{"flowName":"f","input":{"n":847458834325543643123,"x":1.50}}', b'{"flowId":"run","tags":["a"]}'
    )
    state = state_of(numbered([first, other]))
    assert (state.flow_id, state.flow_name, state.status, state.queue, state.tags) == (
        "run",
        "f",
        "running",
        "",
        ("a",),
    )
    assert state.input == b'{"n":847458834325543643123,"x":1.50}'
    assert state.started_at < state.last_event_at


@pytest.mark.req("R003-1.2.02")
@pytest.mark.parametrize(
    ("kind", "status"),
    [("flow.complete", "completed"), ("flow.failed", "failed"), ("flow.cancelled", "cancelled")],
)
def test_a_run_ends_as_its_last_event_says(kind: str, status: str):
    state = after(event(kind, result=[1], error={"code": "X"}, resultKey="flows/r.json"))
    assert (state.status, state.result, state.error) == (status, b"[1]", b'{"code":"X"}')
    assert (state.result_key, state.completed_at) == ("flows/r.json", state.last_event_at)
    assert ended(state)


@pytest.mark.req("R003-1.2.03", "R003-1.2.04", "R003-1.1.13", "R003-1.1.14")
def test_an_attempt_starts_once_it_is_scheduled_and_under_its_own_name():
    start = event("step.attempt.started", "a", run_id="r1", attempt=1)
    assert after(start).steps["a"].status == "pending"
    scheduled = event("step.scheduled", "a", run_id="r1", attempt=1, backoffMs=20)
    step = after(scheduled).steps["a"]
    assert (step.status, step.run_id, step.number, step.backoff_ms, step.tries) == ("scheduled", "r1", 1, 20, 0)
    assert (step.queue, attempt_open(step)) == ("jobs:stream", True)
    unnamed = draft("step.attempt.started", {"stepKey": "a"}, {"stepKey": "a", "stepRunId": "r1", "attempt": 1})
    assert after(scheduled, unnamed).steps["a"].queue == "jobs:stream"
    other = event("step.attempt.started", "a", run_id="r9", attempt=1)
    assert after(scheduled, other).steps["a"].status == "scheduled"
    step = after(scheduled, start, start).steps["a"]
    assert (step.status, step.attempt_status, step.tries, step.job_id) == ("running", "running", 1, "job-r1")
    assert step.queue == "jobs:stream"


@pytest.mark.req("R003-1.2.05", "R003-1.2.08")
def test_a_step_that_is_completed_is_not_begun_again_by_a_late_start():
    done = [
        *began(),
        event("step.attempt.completed", "a", run_id="r1", attempt=1),
        event("step.completed", "a", result={"n": 1}),
    ]
    late = [*began(), event("step.retry.scheduled", "a", run_id="r2", attempt=2)]
    late += [event("step.attempt.started", "a", run_id="r2", attempt=2), event("step.failed", "a", error="no")]
    step = after(*done, *late).steps["a"]
    assert (step.status, step.tries, step.result, step.error) == ("completed", 1, b'{"n":1}', None)
    assert over(step)
    assert not attempt_open(step)


@pytest.mark.req("R003-1.2.06", "R003-1.2.07", "R003-1.2.09")
def test_a_failed_attempt_is_followed_by_the_one_that_is_scheduled():
    failed, retry = [*began(), FAILED], RETRY
    step = after(*failed).steps["a"]
    assert (step.status, step.attempt_status, attempt_open(step)) == ("running", "failed", False)
    step = after(*failed, retry).steps["a"]
    assert (step.status, step.run_id, step.number, step.attempt, step.backoff_ms) == ("retrying", "r2", 2, 1, 500)
    assert (step.job_id, step.queue, step.scheduled_at) == ("", "jobs:stream", step.last_event_at)
    third = event("step.retry.scheduled", "a", run_id="r3", attempt=3)
    assert after(*failed, retry, third).steps["a"].run_id == "r2"
    late = event("step.attempt.started", "a", run_id="r1", attempt=1)
    assert after(*failed, retry, late).steps["a"] == replace(step, last_event_at=numbered([START] * 6)[-1].ts)
    second = event("step.attempt.started", "a", run_id="r2", attempt=2)
    last = event("step.attempt.failed", "a", run_id="r2", attempt=2, error=1)
    step = after(*failed, retry, second, last, retry).steps["a"]
    assert (step.status, step.tries, step.attempt, step.number) == ("running", 2, 2, 2)
    step = after(*failed, retry, second, last, event("step.failed", "a", error={"code": "X"})).steps["a"]
    assert (step.status, step.error) == ("failed", b'{"code":"X"}')


def test_an_attempt_ends_once_and_by_its_own_events():
    completed = event("step.attempt.completed", "a", run_id="r1", attempt=1)
    assert after(*began(), FAILED, completed).steps["a"].attempt_status == "failed"
    assert after(*began(), completed, FAILED).steps["a"].attempt_status == "completed"
    second = event("step.attempt.started", "a", run_id="r2", attempt=2)
    for late in (FAILED, completed):
        step = after(*began(), FAILED, RETRY, late).steps["a"]
        assert (step.attempt, step.attempt_status, attempt_open(step)) == (1, "failed", True)
        assert after(*began(), FAILED, RETRY, second, late).steps["a"].attempt_status == "running"


def test_attempts_without_numbers_follow_each_other():
    events = []
    for number in (1, 2):
        events.append(event("step.retry.scheduled" if events else "step.scheduled", "a"))
        events.append(event("step.attempt.started", "a", run_id=f"r{number}", attempt=number))
        assert after(*events).steps["a"].queue == "jobs:stream"
        events.append(event("step.attempt.failed", "a", run_id=f"r{number}", attempt=number, error=1))
    step = after(*events).steps["a"]
    assert (step.tries, step.attempt, step.run_id) == (2, 2, "r2")


def test_an_attempt_that_failed_before_it_began_does_not_start_any_more():
    failed = event("step.attempt.failed", "a", run_id="r1", attempt=1, error=1)
    step = after(began()[0], failed, began()[1]).steps["a"]
    assert (step.status, step.tries, step.attempt, step.attempt_status) == ("scheduled", 0, 1, "failed")
    assert not attempt_open(step)


@pytest.mark.req("R003-1.2.11")
def test_a_step_behind_an_active_gate_starts_no_attempt():
    state = after(gated(), *began())
    assert (state.steps["a"].status, state.waiting) == ("waiting", ["a"])
    state = after(gated(), settled("triggered", by="webhook"), *began())
    assert (state.steps["a"].status, state.waiting) == ("running", [])


@pytest.mark.req("R003-1.2.14", "R003-1.2.16", "R003-1.2.17")
def test_a_gate_keeps_what_it_waited_for_and_what_released_it():
    placed = gated(channel="paid", key="order/1", until="2025-10-28T12:00:00.000Z")
    gate = after(placed, settled("triggered", by="webhook", payload=1.50, payloadKey="k")).steps["a"].gate
    assert gate is not None
    assert (gate.reason, gate.channel, gate.key, gate.until) == (
        "webhook",
        "paid",
        "order/1",
        "2025-10-28T12:00:00.000Z",
    )
    assert (gate.status, gate.by, gate.payload, gate.payload_key) == ("triggered", "webhook", b"1.5", "k")
    assert gate.placed_at < gate.settled_at
    assert released(gate)


@pytest.mark.req("R003-1.2.15", "R003-2.3.14")
@pytest.mark.parametrize("how", ["triggered", "timeout", "cancelled"])
def test_a_gate_is_settled_by_its_own_token_and_once(how: str):
    other = event(f"step.await.{how}", "a", token="another", by="webhook")
    assert after(gated(), other).steps["a"].status == "waiting"
    state = after(gated(), settled(how, by="webhook"), *[settled(late, by="manual") for late in LATE])
    gate = state.steps["a"].gate
    assert gate is not None
    assert gate.status == how
    assert gate.by == {"triggered": "webhook", "timeout": "timeout", "cancelled": ""}[how]
    again = gated()
    assert after(gated(), settled(how, by="webhook"), again).waiting == []


LATE = ("triggered", "timeout", "cancelled")


@pytest.mark.req("R003-1.2.18")
def test_its_deadline_releases_a_gate_of_time_and_another_only_where_the_flow_goes_on():
    def gate(*events: Event) -> Any:
        return after(*events).steps["a"].gate

    assert not released(gate(gated("time")))
    assert released(gate(gated("time"), settled("timeout")))
    assert not released(gate(gated("manual"), settled("timeout")))
    went_on = gate(gated("manual"), settled("timeout"), settled("triggered", by="timeout"))
    assert released(went_on)
    assert went_on.by == "timeout"


@pytest.mark.req("R003-1.2.19", "R003-1.2.20")
def test_a_cancelled_gate_waits_no_longer():
    state = after(gated(), settled("cancelled"))
    gate = state.steps["a"].gate
    assert gate is not None
    assert (gate.status, state.waiting, released(gate)) == ("cancelled", [], False)
    ended_early = after(gated(), event("step.failed", "a", error=1))
    assert ended_early.waiting == []


@pytest.mark.req("R003-1.2.10")
def test_log_lines_are_counted_for_the_run_and_for_their_step():
    lines = [event("runner.log", level="info", msg="x"), event("runner.log", "a", level="warn", msg="y")]
    state = after(*lines, event("flow.complete"), event("runner.log", "a", level="error", msg="late"))
    assert (state.logs, state.log_level, state.status) == (3, "error", "completed")
    assert (state.steps["a"].logs, state.steps["a"].log_level, state.steps["a"].status) == (2, "error", "pending")


def test_what_is_not_stored_yet_has_no_time_whatever_its_producer_wrote():
    early = event("flow.start", flowName="f")
    early.ts = "1999-01-01T00:00:00.000Z"
    state = fold(FlowState(), early)
    assert (state.started_at, state.last_event_at, state.last_id) == (STAMP, STAMP, "0-0")


def test_a_step_that_is_over_has_no_open_attempt():
    step = after(began()[0], event("step.failed", "a", error=1)).steps["a"]
    assert (step.status, over(step), attempt_open(step)) == ("failed", True, False)


def test_a_timeline_whose_beginning_was_trimmed_is_folded_as_far_as_it_goes():
    state = state_of(numbered([event("step.completed", "a"), event("flow.complete")]))
    assert (state.status, state.steps["a"].status, state.started_at) == ("completed", "completed", "")


DOCUMENT = Path(__file__).parents[2] / "docs/state_machine.md"
REACHED: dict[str, list[Event]] = {
    "pending": [],
    "waiting": [gated()],
    "scheduled": began()[:1],
    "running": began(),
    "failed attempt": [*began(), FAILED],
    "retrying": [*began(), FAILED, RETRY],
    "completed": [*began(), event("step.completed", "a")],
    "failed": [*began(), event("step.failed", "a", error=1)],
}
"""How a step comes into each of its states."""
FITTING = {
    "step.await.scheduled": gated(),
    "step.await.triggered": settled("triggered", by="webhook"),
    "step.await.timeout": settled("timeout"),
    "step.await.cancelled": settled("cancelled"),
    "step.scheduled": began()[0],
    "step.retry.scheduled": RETRY,
    "step.completed": event("step.completed", "a"),
    "step.failed": event("step.failed", "a", error=1),
}


def next_start(reached: str) -> Event:
    return event("step.attempt.started", "a", run_id="r2" if reached == "retrying" else "r1", attempt=1)


@pytest.mark.req("R003-1.2.03", "R003-1.2.07", "R003-1.2.11")
def test_a_step_goes_as_the_table_in_the_documents_says():
    rows = re.findall(r"^\| `(step\.[a-z.]+)` \| (.+?) \| `(\w+)` \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert {kind for kind, _, _ in rows} == {*FITTING, "step.attempt.started"}
    for kind, found, leaves in rows:
        for reached, events in REACHED.items():
            is_over = reached in FINISHED
            before = after(*events).steps["a"].status if events else "pending"
            fits = not is_over if found == "not over" else f"`{before}`" in found
            if found.endswith("failed"):
                fits = reached == "failed attempt"
            record = next_start(reached) if kind == "step.attempt.started" else FITTING[kind]
            assert after(*events, record).steps["a"].status == (leaves if fits else before), (kind, reached)
