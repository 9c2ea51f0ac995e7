"""The checker of timelines: it finds nothing wrong in what an engine may write, and whatever is wrong elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from histories import FLOW_ID, Engine, History, legal, numbered
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from legal import ENDS, violations

from fetchbox.config.v1.config_pb2 import Flow
from fetchbox.flow.v1.event_pb2 import Event
from flows.model.events import draft

NEVER_MISSING = (
    "flow.start",
    "step.attempt.started",
    "step.attempt.completed",
    "step.attempt.failed",
    "step.failed",
    "step.await.scheduled",
    "step.await.triggered",
    "step.await.timeout",
    "step.await.cancelled",
)
"""Without one of these, no run that has ended is legal."""


@settings(deadline=None)
@given(legal(), st.data())
def test_what_an_engine_writes_is_legal_and_so_is_its_beginning(history: History, data: st.DataObject):
    events = history.events[: data.draw(st.integers(1, len(history.events)))]
    assert violations(events, history.definition) == []
    assert violations(history.events, must_end=history.events[-1].kind in ENDS) == []


@settings(deadline=None)
@given(legal(), st.data())
def test_an_event_that_is_there_twice_is_found(history: History, data: st.DataObject):
    told = [at for at, event in enumerate(history.events) if event.kind != "runner.log"]
    first = data.draw(st.sampled_from(told))
    second = data.draw(st.integers(first + 1, len(history.events)))
    events = [*history.events[:second], history.events[first], *history.events[second:]]
    assert violations(numbered(events))


@settings(deadline=None)
@given(legal(), st.data())
def test_an_event_that_is_missing_is_found(history: History, data: st.DataObject):
    assume(history.events[-1].kind in ENDS)
    at = data.draw(st.sampled_from([n for n, event in enumerate(history.events) if event.kind in NEVER_MISSING]))
    assert violations([*history.events[:at], *history.events[at + 1 :]], history.definition)


def test_a_run_without_an_end_is_found_where_it_must_have_one():
    def first(below: int) -> int:
        return 0

    events = Engine(first).history().events
    assert violations(events, must_end=True) == []
    assert violations(events[:-1]) == []
    assert violations(events[:-1], must_end=True) == [f"{events[-2].id} step.failed step-0: the run has no end"]


def event(
    kind: str, step: str = "", run_id: str = "", attempt: int = 0, /, *, flow: str = FLOW_ID, **data: Any
) -> Event:
    meta: dict[str, Any] = {"flowId": flow}
    if step:
        meta["stepKey"] = data["stepKey"] = step
    if run_id:
        meta |= {"stepRunId": run_id, "attempt": attempt}
    return draft(kind, data, meta)


START = event("flow.start", flowName="f")
SCHEDULED, STARTED = event("step.scheduled", "a", "r1", 1), event("step.attempt.started", "a", "r1", 1)
FAILED, DONE = event("step.attempt.failed", "a", "r1", 1, error=1), event("step.attempt.completed", "a", "r1", 1)
COMPLETED, GIVEN_UP = event("step.completed", "a"), event("step.failed", "a", error=1)
PLACED = event("step.await.scheduled", "gated", reason="webhook", channel="c", token="t")
TRIGGERED = event("step.await.triggered", "gated", by="webhook", token="t")
TIMEOUT = event("step.await.timeout", "gated", token="t")

DEFINITION = Flow()
DEFINITION.steps["a"].handler = "package.module:Class"
DEFINITION.steps["a"].max_retries = 1
DEFINITION.steps["b"].handler = "package.module:Class"
DEFINITION.steps["b"].needs.append("a")
DEFINITION.steps["gated"].handler = "package.module:Class"
DEFINITION.steps["gated"].gate.reason = "webhook"
DEFINITION.steps["wait"].gate.reason = "webhook"

BAD = {
    "another run": ([event("runner.log", flow="other", level="info")], "another run"),
    "not scheduled": ([STARTED], "not scheduled"),
    "scheduled twice": ([SCHEDULED, event("step.scheduled", "a", "r2", 1)], "scheduled before"),
    "another attempt": ([SCHEDULED, event("step.attempt.started", "a", "r2", 1)], "r1 was scheduled"),
    "a number too high": ([event("step.scheduled", "a", "r1", 2)], "attempt 2 follows 0"),
    "another number": ([SCHEDULED, event("step.attempt.started", "a", "r1", 2)], "attempt 2 starts"),
    "a name of another step": ([SCHEDULED, event("step.scheduled", "gated", "r1", 1)], "r1 was there before"),
    "an end without a start": ([SCHEDULED, DONE], "nothing runs"),
    "two ends of an attempt": ([SCHEDULED, STARTED, FAILED, DONE], "nothing runs"),
    "a retry without a failure": ([SCHEDULED, event("step.retry.scheduled", "a", "r2", 2)], "no attempt has failed"),
    "completed while it runs": ([SCHEDULED, STARTED, COMPLETED], "still runs"),
    "completed without an attempt": ([COMPLETED], "neither an attempt nor a gate"),
    "completed after a failure": ([SCHEDULED, STARTED, FAILED, COMPLETED], "has not completed"),
    "failed while it runs": ([SCHEDULED, STARTED, GIVEN_UP], "still runs"),
    "failed after success": ([SCHEDULED, STARTED, DONE, GIVEN_UP], "has completed"),
    "failed while it waits": ([PLACED, event("step.failed", "gated", error=1)], "still waits"),
    "begun again": ([SCHEDULED, STARTED, DONE, COMPLETED, STARTED], "after the step was completed"),
    "both outcomes": ([SCHEDULED, STARTED, DONE, COMPLETED, GIVEN_UP], "after the step was completed"),
    "a gate too late": ([SCHEDULED, event("step.await.scheduled", "a", reason="time", token="t")], "before the step"),
    "two gates": ([PLACED, TRIGGERED, PLACED], "had a gate"),
    "a gate settled twice": ([PLACED, TRIGGERED, TIMEOUT], "is released"),
    "no gate": ([TRIGGERED], "not placed"),
    "another token": ([PLACED, event("step.await.triggered", "gated", by="webhook", token="u")], "the token t"),
    "another cause": ([PLACED, event("step.await.triggered", "gated", by="event", token="t")], "does not release"),
    "begun behind a gate": ([PLACED, event("step.scheduled", "gated", "r1", 1)], "gate is waiting"),
    "begun after a deadline": ([PLACED, TIMEOUT, event("step.scheduled", "gated", "r1", 1)], "gate is timeout"),
    "an open gate at the end": ([PLACED, event("flow.cancelled")], "still waits"),
    "an attempt at the end": ([SCHEDULED, STARTED, event("flow.cancelled")], "still runs"),
    "a step at the end": ([SCHEDULED, event("flow.cancelled")], "not over"),
    "after the end": ([event("flow.cancelled"), event("runner.log", level="info")], "after flow.cancelled"),
    "two ends": ([event("flow.cancelled"), event("flow.complete")], "after flow.cancelled"),
    "failed by nothing": ([event("flow.failed", error=1, stepKey="a")], "a has not failed"),
    "an unknown kind": ([event("step.paused", "a")], "no kind"),
    "a patch": ([event("flow.snapshot.patch")], "no kind"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_legal_is_found(name: str):
    events, told = BAD[name]
    assert violations(numbered([START, *events[:-1]])) == []
    assert any(told in line for line in violations(numbered([START, *events])))


BAD_BY_DEFINITION = {
    "needs": ([event("step.scheduled", "b", "r1", 1)], "needs a"),
    "no gate": ([event("step.scheduled", "gated", "r1", 1)], "not released"),
    "another gate": ([event("step.await.scheduled", "gated", reason="time", token="t")], "waits for webhook"),
    "a stranger": ([event("step.scheduled", "c", "r1", 1)], "no step of the flow"),
    "too many attempts": (
        [
            *(SCHEDULED, STARTED, FAILED, event("step.retry.scheduled", "a", "r2", 2)),
            *(event("step.attempt.started", "a", "r2", 2), event("step.attempt.failed", "a", "r2", 2, error=1)),
            event("step.retry.scheduled", "a", "r3", 3),
        ],
        "1 times only",
    ),
    "work without an attempt": ([PLACED, TRIGGERED, event("step.completed", "gated")], "a wait has no attempts"),
    "unfinished": ([SCHEDULED, STARTED, DONE, COMPLETED, event("flow.complete")], "not completed: b, gated, wait"),
}


@pytest.mark.parametrize("name", BAD_BY_DEFINITION)
def test_what_the_flow_does_not_allow_is_found(name: str):
    events, told = BAD_BY_DEFINITION[name]
    assert violations(numbered([START, *events[:-1]]), DEFINITION) == []
    assert any(told in line for line in violations(numbered([START, *events]), DEFINITION))


def test_the_start_comes_first_and_ids_rise():
    assert any("first" in line for line in violations(numbered([event("runner.log", level="info")])))
    records = numbered([START, SCHEDULED])
    assert violations(records) == []
    assert any("rise" in line for line in violations([records[0], *numbered([SCHEDULED])]))
