"""Reducing the patches of a run gives what its timeline gives, by another way of reading that, too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from histories import FLOW_ID, FLOW_NAME, History, anything, legal, shuffled, with_echoes
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.flow.v1.event_pb2 import Event, View
from flows.model import views
from flows.model.checks import check
from flows.model.events import draft
from flows.model.project import project
from flows.model.reduce import SnapshotReducer, StepsReducer, reduce_runs, reduce_snapshot, reduce_steps
from flows.model.state import state_of
from flows.model.types import FlowState
from kernel.redis import keys
from tests.examples import most

STATUS_AFTER = {
    "step.scheduled": "scheduled",
    "step.attempt.started": "running",
    "step.attempt.completed": "running",
    "step.attempt.failed": "running",
    "step.retry.scheduled": "retrying",
    "step.completed": "completed",
    "step.failed": "failed",
    "step.await.scheduled": "waiting",
    "step.await.triggered": "pending",
    "step.await.timeout": "pending",
    "step.await.cancelled": "pending",
}
STATUS_AT_END = {"flow.complete": "completed", "flow.failed": "failed", "flow.cancelled": "cancelled"}


def projected(events: Iterable[Event]) -> dict[int, list[Event]]:
    """The streams of projections that a timeline leaves, by view."""
    streams: dict[int, list[Event]] = {view: [] for view in View.values()}
    state = FlowState()
    for event in events:
        state, patches = project(state, event)
        for patch in patches:
            streams[patch.view].append(draft(patch.kind, patch.data))
    return streams


def read(events: list[Event]) -> list[tuple[Event, dict[str, Any], dict[str, Any]]]:
    return [(event, json.loads(event.data), json.loads(event.meta)) for event in events]


def steps_told(events: list[Event]) -> dict[str, dict[str, Any]]:
    """The steps of a legal timeline, read without any state: the last word on each thing counts."""
    told: dict[str, dict[str, Any]] = {}
    for event, data, meta in read(events):
        key = meta.get("stepKey") if event.kind == "runner.log" else data.get("stepKey")
        if not key or event.kind.startswith("flow."):
            continue
        step = told.setdefault(key, {"stepKey": key})
        step["lastEventAt"] = event.ts
        if event.kind == "runner.log":
            step["logsCount"] = step.get("logsCount", 0) + 1
            step["lastLogLevel"] = data["level"]
            continue
        step["status"] = STATUS_AFTER[event.kind]
        if event.kind.startswith("step.attempt."):
            step["attempt"] = meta["attempt"]
            step["lastAttemptStatus"] = event.kind.removeprefix("step.attempt.").replace("started", "running")
        if event.kind == "step.attempt.started":
            step["triesCount"] = step.get("triesCount", 0) + 1
            step["startedAt"] = event.ts
        if event.kind in ("step.completed", "step.failed"):
            step["completedAt"] = event.ts
        if event.kind.startswith("step.await."):
            for name in ("waitingFor", "waitUntil", "waitToken"):
                step.pop(name, None)
            step["waiting"] = event.kind == "step.await.scheduled"
            step.update(wait_told(data) if step["waiting"] else {})
    return told


def wait_told(data: dict[str, Any]) -> dict[str, Any]:
    until = {"waitUntil": data["until"]} if "until" in data else {}
    return {"waitingFor": data["reason"], "waitToken": data["token"], **until}


def snapshot_told(events: list[Event]) -> dict[str, Any]:
    """The snapshot of a legal timeline in the same way."""
    told: dict[str, Any] = {"lastEventAt": events[-1].ts}
    logs = [data for event, data, _ in read(events) if event.kind == "runner.log"]
    if logs:
        told |= {"logsCount": len(logs), "lastLogLevel": logs[-1]["level"]}
    if events[0].kind == "flow.start":
        told |= {"status": "running", "startedAt": events[0].ts, "queue": events[0].subject}
        told |= {"flowId": json.loads(events[0].meta)["flowId"], "flowName": json.loads(events[0].data)["flowName"]}
    if events[-1].kind in STATUS_AT_END:
        told |= {"status": STATUS_AT_END[events[-1].kind], "completedAt": events[-1].ts}
    steps = {key: outline_told(step) for key, step in steps_told(events).items()}
    if any(steps.values()):
        told["steps"] = {key: step for key, step in steps.items() if step}
    open_gates: dict[str, dict[str, Any]] = {}
    for event, data, _ in read(events):
        if event.kind == "step.await.scheduled":
            open_gates[data["token"]] = wait_told(data) | {"waitStep": data["stepKey"]}
        elif event.kind.startswith("step.await."):
            open_gates.pop(data["token"], None)
    return told | (list(open_gates.values())[-1] if open_gates else {})


def outline_told(step: dict[str, Any]) -> dict[str, Any]:
    names = {"triesCount": "triesCount", "attempt": "lastAttempt"}
    outline = {name: step[told] for told, name in names.items() if told in step}
    return outline | ({"status": step["status"]} if step.get("status") not in {None, "pending", "waiting"} else {})


@pytest.mark.req("R003-2.3.45")
@settings(deadline=None, max_examples=most(200))
@given(legal(), st.data())
def test_reducing_the_patches_of_a_legal_run_equals_reducing_its_timeline(history: History, data: st.DataObject):
    events = history.events[: data.draw(st.integers(1, len(history.events)))]
    streams, state = projected(events), state_of(events)
    assert reduce_snapshot(streams[View.VIEW_SNAPSHOT]) == snapshot_told(events) == views.snapshot(state)
    assert reduce_steps(streams[View.VIEW_STEPS]) == steps_told(events) == views.steps(state)


@pytest.mark.req("R003-2.3.45")
@settings(deadline=None, max_examples=most(200))
@given(st.one_of(shuffled(), with_echoes().map(lambda pair: pair[1]), anything()))
def test_reducing_the_patches_of_any_run_equals_folding_its_timeline(events: list[Event]):
    streams, state = projected(events), state_of(events)
    assert reduce_snapshot(streams[View.VIEW_SNAPSHOT]) == views.snapshot(state)
    assert reduce_steps(streams[View.VIEW_STEPS]) == views.steps(state)
    assert len(streams[View.VIEW_RUNS]) == (1 if state.flow_id or state.started_at else 0)


@pytest.mark.req("R003-2.3.17", "R003-2.3.28", "R003-2.3.38", "R003-2.3.41", "R003-2.2.01")
@settings(deadline=None)
@given(st.one_of(legal().map(lambda history: history.events), shuffled()))
def test_all_projections_are_what_their_streams_may_hold(events: list[Event]):
    kinds: dict[int, str] = {
        View.VIEW_SNAPSHOT: "flow.snapshot.patch",
        View.VIEW_STEPS: "flow.step.patch",
        View.VIEW_RUNS: "flow.run.indexed",
        View.VIEW_LOGS: "flow.step.log.ref",
    }
    for view, records in projected(events).items():
        for record in records:
            assert record.kind == kinds[view]
            check(record, 65_536)


@pytest.mark.req("R003-2.3.42", "R003-2.3.43", "R003-2.3.44", "R003-2.3.46", "R003-3.3.07", "R003-3.4.03")
@settings(deadline=None)
@given(legal())
def test_the_log_index_leads_to_every_log_line_of_a_step_and_repeats_none_of_it(history: History):
    lines = [
        (event, data, meta)
        for event, data, meta in read(history.events)
        if event.kind == "runner.log" and "stepKey" in meta
    ]
    expected = [
        {
            "stepKey": meta["stepKey"],
            **({"attempt": meta["attempt"]} if "attempt" in meta else {}),
            "level": data["level"],
            "ref": {"stream": keys.flow_timeline(FLOW_ID), "id": event.id},
            "ts": event.ts,
        }
        for event, data, meta in lines
    ]
    assert [json.loads(record.data) for record in projected(history.events)[View.VIEW_LOGS]] == expected


def patch(kind: str, **data: Any) -> Event:
    return draft(kind, data)


@pytest.mark.req("R003-4.2.06")
def test_null_clears_a_field_and_what_is_not_there_stays():
    reducer = SnapshotReducer()
    reducer.add(patch("flow.snapshot.patch", status="running", waitingFor="time", waitUntil="u", waitToken="t"))
    reducer.add(patch("flow.snapshot.patch", waitingFor=None, waitUntil=None, waitStep=None))
    assert reducer.value == {"status": "running", "waitToken": "t"}
    steps = StepsReducer()
    steps.add(patch("flow.step.patch", stepKey="a", status="waiting", waitingFor="time"))
    steps.add(patch("flow.step.patch", stepKey="a", waitingFor=None))
    assert steps.value == {"a": {"stepKey": "a", "status": "waiting"}}


@pytest.mark.req("R003-2.3.21", "R003-2.3.31", "R003-2.3.32")
def test_deltas_are_added():
    counted = [patch("flow.snapshot.patch", logsCountDelta=n) for n in (1, 2, 1)]
    assert reduce_snapshot(counted) == {"logsCount": 4}
    tried = [patch("flow.step.patch", stepKey="a", triesCountDelta=1, logsCountDelta=n) for n in (3, 4)]
    assert reduce_steps(tried) == {"a": {"stepKey": "a", "triesCount": 2, "logsCount": 7}}


@pytest.mark.req("R003-2.3.23")
def test_steps_of_a_snapshot_are_merged_field_by_field():
    first = patch(
        "flow.snapshot.patch", steps={"a": {"triesCount": 1, "status": "running"}, "b": {"status": "running"}}
    )
    second = patch("flow.snapshot.patch", steps={"a": {"status": "completed"}})
    assert reduce_snapshot([first, second]) == {
        "steps": {"a": {"triesCount": 1, "status": "completed"}, "b": {"status": "running"}}
    }


@pytest.mark.req("R003-2.3.40", "R003-3.3.08")
def test_a_run_that_was_indexed_twice_is_there_once():
    def entry(run: str, source: str) -> Event:
        return patch("flow.run.indexed", id=run, flowName=FLOW_NAME, createdAt="t", sourceId=source)

    entries = [entry("a", "1-0"), entry("b", "1-0"), entry("a", "1-0"), entry("c", "2-0")]
    assert [run["id"] for run in reduce_runs(entries)] == ["a", "b", "c"]


def test_other_kinds_change_nothing():
    strangers = [patch(kind, stepKey="a", id="a", sourceId="1-0", status="x") for kind in ("flow.start", "order.paid")]
    assert (reduce_snapshot(strangers), reduce_steps(strangers), reduce_runs(strangers)) == ({}, {}, [])
