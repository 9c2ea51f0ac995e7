"""How a run ends before all of its steps are completed: everything in it that is open ends with it, in one append."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.flow.v1.event_pb2 import Event
from flows.gates.deliveries import Hit
from flows.model import kinds
from flows.model.course import Course, Problem, text
from flows.model.state import attempt_open, over
from flows.model.types import FlowState
from kernel.errors import failure_name

_STOPPED: Final = Problem(failure_name(codes.FAILURE_CODE_SYSTEM_CANCELED), "the run ended")


def ending(
    state: FlowState,
    status: Literal["failed", "cancelled"],
    hits: Mapping[str, bytes],
    *,
    step_key: str = "",
    problem: Problem | None = None,
    reason: str = "",
) -> list[Event]:
    """The events that end a run which has begun and not ended, the last of them `flow.failed` or `flow.cancelled`.

    `step_key` is the step that failed, with `problem`: its own open gate is cancelled, and it fails with that. Other
    open gates are cancelled, but for those that something has opened (`hits`, of the order): whoever sent that was told
    so. Other steps with an open attempt fail with SYSTEM_CANCELED. `reason`: what whoever cancelled the run said. Jobs
    that still run are stopped by the engine, which is to be woken by the append.
    """
    course = Course(state)
    end(course, status, hits, step_key=step_key, problem=problem, reason=reason)
    return course.events


def end(
    course: Course,
    status: Literal["failed", "cancelled"],
    hits: Mapping[str, bytes],
    *,
    step_key: str = "",
    problem: Problem | None = None,
    reason: str = "",
) -> None:
    """The same in the course of a decision."""
    _close(course, step_key, hits)
    if step_key and not over(course.step(step_key)):
        _fail(course, step_key, problem or _STOPPED)
    for key in list(course.state.steps):
        _close(course, key, hits)
        step = course.step(key)
        if attempt_open(step):
            _fail(course, key, _STOPPED)
    if status == "cancelled":
        course.tell(kinds.FLOW_CANCELLED, {"reason": text(reason) if reason else None})
        return
    failed = text(step_key) if step_key else None
    course.tell(kinds.FLOW_FAILED, {"stepKey": failed, "error": (problem or _STOPPED).json})


def _close(course: Course, key: str, hits: Mapping[str, bytes]) -> None:
    gate = course.step(key).gate
    if gate is None or gate.status != "waiting":
        return
    if key in hits:
        course.tell_step(kinds.STEP_AWAIT_TRIGGERED, key, Hit.decode(hits[key]).release(gate.token))
    else:
        course.tell_step(kinds.STEP_AWAIT_CANCELLED, key, {"token": text(gate.token)})


def _fail(course: Course, key: str, problem: Problem) -> None:
    if course.step(key).attempt_status == "running":
        course.tell_step(kinds.STEP_ATTEMPT_FAILED, key, {"error": problem.json})
    course.tell_step(kinds.STEP_FAILED, key, {"error": problem.json})
