"""What each event leaves in the projections, as in the examples of seed 003, section 4.2."""

from __future__ import annotations

import json
from typing import Any

import pytest
from histories import FLOW_ID, History, anything, as_published, legal, numbered, shuffled, stored, with_echoes
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.flow.v1.event_pb2 import Event, View
from flows.model.events import draft, meta_of
from flows.model.project import log_patches, project
from flows.model.state import state_of
from flows.model.types import PLACE, STAMP, FlowState, Patch
from kernel.redis import keys

META = {"flowId": "6d1a", "flowName": "example-flow"}
STEP = META | {"stepKey": "second_step"}
ATTEMPT = STEP | {"stepRunId": "r1", "attempt": 1, "jobId": "r1", "queue": "jobs:stream"}
START = draft("flow.start", {"flowName": "example-flow"}, META, "example_queue")
GATE = {"stepKey": "second_step", "reason": "webhook", "channel": "webhook", "key": "order/123", "token": "abc123"}
PLACED = draft("step.await.scheduled", GATE, META)
TRIGGERED = draft("step.await.triggered", {"stepKey": "second_step", "by": "webhook", "token": "abc123"}, META)
SCHEDULED = draft("step.scheduled", {"stepKey": "second_step"}, ATTEMPT)
STARTED = draft("step.attempt.started", {"stepKey": "second_step"}, ATTEMPT)
FAILED = draft("step.attempt.failed", {"stepKey": "second_step", "error": {"code": "X", "message": "no"}}, ATTEMPT)
ATTEMPT_DONE = draft("step.attempt.completed", {"stepKey": "second_step"}, ATTEMPT)
RETRY = draft("step.retry.scheduled", {"stepKey": "second_step"}, ATTEMPT | {"stepRunId": "r2", "attempt": 2})
AGAIN = draft("step.attempt.started", {"stepKey": "second_step"}, ATTEMPT | {"stepRunId": "r2", "attempt": 2})
DONE = draft("step.completed", {"stepKey": "second_step", "result": 1}, STEP)
GIVEN_UP = draft("step.failed", {"stepKey": "second_step", "error": 1}, STEP)
LOG = draft("runner.log", {"level": "info", "msg": "x"}, ATTEMPT)
END = draft("flow.complete", {}, META)

VIEWS = {"snapshot": View.VIEW_SNAPSHOT, "step": View.VIEW_STEPS, "run": View.VIEW_RUNS, "log": View.VIEW_LOGS}


def patches(before: list[Event], last: Event) -> dict[str, Any]:
    """What the last event leaves, by view; at most one record in each."""
    made = project(state_of(numbered(before)), last)[1]
    assert len({patch.view for patch in made}) == len(made)
    by_view = {patch.view: json.loads(patch.data) for patch in made}
    return {name: by_view[view] for name, view in VIEWS.items() if view in by_view}


@pytest.mark.req("R003-4.2.01", "R003-4.2.02", "R003-2.3.18", "R003-2.3.19", "R003-2.3.20", "R003-2.3.39")
def test_a_run_that_starts():
    made = patches([], START)
    assert made == {
        "snapshot": {
            "status": "running",
            "flowName": "example-flow",
            "flowId": "6d1a",
            "queue": "example_queue",
            "startedAt": STAMP,
            "lastEventAt": STAMP,
        },
        "run": {
            "id": "6d1a",
            "flowName": "example-flow",
            "queue": "example_queue",
            "createdAt": STAMP,
            "sourceId": PLACE,
        },
    }
    assert patches([START], START) == {"snapshot": {"lastEventAt": STAMP}}


@pytest.mark.req("R003-4.2.03", "R003-2.3.23", "R003-2.3.29", "R003-2.3.30", "R003-2.3.32", "R003-2.3.33")
def test_an_attempt_that_starts():
    made = patches([START, SCHEDULED], STARTED)
    assert made["step"] == {
        "stepKey": "second_step",
        "status": "running",
        "attempt": 1,
        "lastAttemptStatus": "running",
        "triesCountDelta": 1,
        "startedAt": STAMP,
        "lastEventAt": STAMP,
    }
    assert made["snapshot"] == {
        "steps": {"second_step": {"triesCount": 1, "lastAttempt": 1, "status": "running"}},
        "lastEventAt": STAMP,
    }


@pytest.mark.req("R003-2.3.33", "R003-2.3.34")
def test_attempts_that_end_and_begin_again():
    told = {"stepKey": "second_step", "lastEventAt": STAMP}
    tried = [START, SCHEDULED, STARTED]
    assert patches(tried, FAILED)["step"] == told | {"lastAttemptStatus": "failed"}
    assert patches([*tried, FAILED], RETRY)["step"] == told | {"status": "retrying"}
    assert patches([*tried, FAILED, RETRY], AGAIN)["step"] == told | {
        "status": "running",
        "attempt": 2,
        "lastAttemptStatus": "running",
        "triesCountDelta": 1,
        "startedAt": STAMP,
    }
    assert patches(tried, ATTEMPT_DONE)["step"] == told | {"lastAttemptStatus": "completed"}


@pytest.mark.req("R003-2.3.29", "R003-2.3.30")
@pytest.mark.parametrize(("last", "status"), [(DONE, "completed"), (GIVEN_UP, "failed")], ids=["completed", "failed"])
def test_a_step_that_ends(last: Event, status: str):
    tried = [START, SCHEDULED, STARTED, ATTEMPT_DONE if status == "completed" else FAILED]
    times = {"completedAt": STAMP, "lastEventAt": STAMP}
    assert patches(tried, last)["step"] == {"stepKey": "second_step", "status": status} | times
    assert patches(tried, last)["snapshot"]["steps"] == {"second_step": {"status": status}}
    assert patches([*tried, last], STARTED) == {
        "snapshot": {"lastEventAt": STAMP},
        "step": {"stepKey": "second_step", "lastEventAt": STAMP},
    }


@pytest.mark.req("R003-2.3.18", "R003-2.3.20")
@pytest.mark.parametrize(
    ("kind", "status"),
    [("flow.complete", "completed"), ("flow.failed", "failed"), ("flow.cancelled", "cancelled")],
)
def test_a_run_that_ends(kind: str, status: str):
    data = {"stepKey": "second_step"} if status == "failed" else {}
    made = patches([START], draft(kind, data, META))
    assert made == {"snapshot": {"status": status, "completedAt": STAMP, "lastEventAt": STAMP}}


def test_an_event_behind_the_end_leaves_nothing():
    assert patches([START, END], STARTED) == {}
    assert patches([START, END], END) == {}


def test_what_is_no_event_of_a_timeline_leaves_nothing():
    assert patches([START], draft("order.paid", {"stepKey": "second_step"}, STEP)) == {}


@pytest.mark.req("R003-4.2.04", "R003-2.3.24", "R003-2.3.26", "R003-2.3.27", "R003-2.3.35", "R003-2.3.36")
def test_a_gate_that_is_placed():
    made = patches([START], PLACED)
    wait = {"waitingFor": "webhook", "waitToken": "abc123"}
    assert made["snapshot"] == wait | {"waitStep": "second_step", "lastEventAt": STAMP}
    assert made["step"] == wait | {
        "stepKey": "second_step",
        "status": "waiting",
        "waiting": True,
        "lastEventAt": STAMP,
    }


@pytest.mark.req("R003-4.2.05", "R003-2.3.35")
def test_a_gate_that_is_triggered():
    made = patches([START, PLACED], TRIGGERED)
    wait = {"waitingFor": None, "waitToken": None}
    assert made["snapshot"] == wait | {"waitStep": None, "lastEventAt": STAMP}
    assert made["step"] == wait | {
        "stepKey": "second_step",
        "status": "pending",
        "waiting": False,
        "lastEventAt": STAMP,
    }


@pytest.mark.req("R003-2.3.25", "R003-2.3.37", "R003-4.2.05")
@pytest.mark.parametrize("how", ["triggered", "timeout", "cancelled"])
def test_however_a_gate_is_settled_its_time_is_cleared_too(how: str):
    gate = {"stepKey": "second_step", "reason": "time", "until": "2025-10-28T12:00:00.000Z", "token": "t"}
    placed = draft("step.await.scheduled", gate, META)
    made = patches([START], placed)
    for view in ("snapshot", "step"):
        assert made[view]["waitUntil"] == "2025-10-28T12:00:00.000Z"
    made = patches([START, placed], draft(f"step.await.{how}", {"stepKey": "second_step", "token": "t"}, META))
    for view in ("snapshot", "step"):
        for name in ("waitingFor", "waitUntil", "waitToken"):
            assert made[view].get(name, "") is None


@pytest.mark.req("R003-2.3.24", "R003-4.2.05")
def test_of_two_active_gates_the_one_that_was_placed_last_is_shown_until_it_is_released():
    other = draft("step.await.scheduled", {"stepKey": "other", "reason": "manual", "token": "t2"}, META)
    release = draft("step.await.triggered", {"stepKey": "other", "by": "manual", "token": "t2"}, META)
    shown = {"waitingFor": "manual", "waitToken": "t2", "waitStep": "other", "lastEventAt": STAMP}
    assert patches([START, PLACED], other)["snapshot"] == shown
    back = {"waitingFor": "webhook", "waitToken": "abc123", "waitStep": "second_step", "lastEventAt": STAMP}
    assert patches([START, PLACED, other], release)["snapshot"] == back
    assert patches([START, PLACED, other], TRIGGERED)["snapshot"] == {"lastEventAt": STAMP}


@pytest.mark.req("R003-4.2.07", "R003-2.3.21", "R003-2.3.22", "R003-2.3.31", "R003-2.3.41", "R003-2.2.04")
def test_a_log_line_of_a_step():
    made = patches([START, SCHEDULED, STARTED], LOG)
    counted = {"logsCountDelta": 1, "lastLogLevel": "info", "lastEventAt": STAMP}
    assert made == {
        "snapshot": counted,
        "step": counted | {"stepKey": "second_step"},
        "log": {
            "stepKey": "second_step",
            "attempt": 1,
            "ref": {"stream": "nq:flow:6d1a", "id": PLACE},
            "level": "info",
            "ts": STAMP,
        },
    }
    assert tuple(json.loads(patch.data) for patch in log_patches(LOG, "6d1a")) == tuple(made.values())


def test_a_log_line_of_a_run_alone_is_in_no_index():
    made = patches([START], draft("runner.log", {"level": "info", "msg": "x", "stepKey": "free"}, META))
    assert set(made) == {"snapshot"}


ANY = st.one_of(
    legal().map(lambda history: history.events),
    shuffled(),
    with_echoes().map(lambda pair: pair[1]),
    anything(),
)


@settings(deadline=None)
@given(ANY)
def test_patches_made_before_an_event_is_stored_become_those_of_the_stored_event(events: list[Event]):
    """All events are published in one go, so that the times of earlier ones are placeholders, too."""
    published = known = FlowState()
    for event in events:
        published, made = project(published, as_published(event))
        known, expected = project(known, event)
        assert [filled(patch, event) for patch in made] == list(expected)
        assert all(b"<" not in patch.data for patch in expected)


def filled(patch: Patch, event: Event) -> Patch:
    """What the store makes of a patch: it knows nothing of JSON."""
    data = patch.data.replace(STAMP.encode(), event.ts.encode()).replace(PLACE.encode(), event.id.encode())
    return Patch(patch.view, patch.kind, data)


@settings(deadline=None)
@given(legal())
def test_projecting_changes_no_state_that_was_given_and_gives_what_folding_gives(history: History):
    state = FlowState()
    for at, event in enumerate(history.events):
        before = state
        state, made = project(before, event)
        assert before == state_of(history.events[:at])
        if event.kind == "runner.log":
            assert made == log_patches(event, keys.run(state.tenant, meta_of(event).flow_id))
    assert state == state_of(history.events)


COURSE = [PLACED, TRIGGERED, SCHEDULED, STARTED, FAILED, RETRY, AGAIN]


@pytest.mark.req("R003-3.3.01")
@pytest.mark.parametrize("last", [*COURSE[:-1], ATTEMPT_DONE, DONE, LOG, END], ids=lambda event: event.kind)
def test_a_patch_does_not_grow_with_the_steps_of_its_run(last: Event):
    before = COURSE[: COURSE.index(last)] if last in COURSE else COURSE
    small = project(state_of(numbered([START, *before])), stored(last, 0))[1]
    large = project(state_of(numbered([START, *neighbours(100), *before])), stored(last, 0))[1]
    assert small == large
    assert small
    shown = json.loads(small[0].data)
    assert "flowName" not in shown
    assert len(shown.get("steps", {})) <= 1


def neighbours(count: int) -> list[Event]:
    """Other steps in all kinds of states."""
    events: list[Event] = []
    for number in range(count):
        meta = {"flowId": FLOW_ID, "stepKey": f"s{number}", "stepRunId": f"n{number}", "attempt": 1}
        kinds = ("step.scheduled", "step.attempt.started", "step.attempt.completed", "step.completed")
        events += [draft(kind, {"stepKey": f"s{number}"}, meta) for kind in kinds[: 1 + number % 4]]
        events.append(draft("runner.log", {"level": "info", "msg": "x"}, meta))
    return events
