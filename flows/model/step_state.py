"""What each kind of event does to a step.

A step is `pending`; `waiting` while a gate stands before it, and `pending` again behind it; `scheduled`, `running`, and
as often as it is tried again `retrying` and `running`; then `completed` or `failed`. A step without work of its own
goes from `pending` to its end. An event that does not fit where its step stands changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from flows.model import kinds
from flows.model.facts import Fact
from flows.model.types import GateState, StepState

Transition = Callable[[StepState, Fact], None]

_OVER: Final = frozenset(("completed", "failed"))


def over(step: StepState) -> bool:
    """Whether the step has ended."""
    return step.status in _OVER


def attempt_open(step: StepState) -> bool:
    """Whether an attempt is scheduled, or runs, whose end is not recorded."""
    return not over(step) and (step.number > step.attempt or step.attempt_status == "running")


def released(gate: GateState) -> bool:
    """Whether the step behind the gate may go on. Its deadline alone releases a gate of time only."""
    return gate.status == "triggered" or (gate.status == "timeout" and gate.reason == "time")


def _scheduled(step: StepState, fact: Fact) -> None:
    if step.status == "pending":
        step.status = "scheduled"
        _plan(step, fact)


def _retried(step: StepState, fact: Fact) -> None:
    is_next = not fact.meta.attempt or fact.meta.attempt > step.attempt
    if step.attempt_status == "failed" and step.attempt == step.number and is_next:
        step.status = "retrying"
        _plan(step, fact)


def _plan(step: StepState, fact: Fact) -> None:
    """The next attempt. An event without its number and id means the one that follows."""
    step.number = max(fact.meta.attempt, step.attempt + 1)
    step.run_id = fact.meta.step_run_id
    step.scheduled_at = fact.at
    step.backoff_ms = fact.number("backoffMs")
    step.queue = fact.meta.queue
    step.job_id = ""


def _attempt_started(step: StepState, fact: Fact) -> None:
    if step.number > step.attempt and _is_of_attempt(step, fact):
        step.status = "running"
        step.run_id = fact.meta.step_run_id
        step.attempt = step.number
        step.attempt_status = "running"
        step.tries += 1
        step.started_at = fact.at
        step.job_id = fact.meta.job_id
        step.queue = fact.meta.queue or step.queue


def _attempt_completed(step: StepState, fact: Fact) -> None:
    _end_attempt(step, fact, "completed")


def _attempt_failed(step: StepState, fact: Fact) -> None:
    _end_attempt(step, fact, "failed")


def _end_attempt(step: StepState, fact: Fact, status: str) -> None:
    if attempt_open(step) and _is_of_attempt(step, fact):
        step.attempt = step.number
        step.attempt_status = status


def _is_of_attempt(step: StepState, fact: Fact) -> bool:
    return not step.run_id or step.run_id == fact.meta.step_run_id


def _completed(step: StepState, fact: Fact) -> None:
    _end(step, fact)
    step.status = "completed"
    step.result = fact.json("result")
    step.result_key = fact.text("resultKey")


def _failed(step: StepState, fact: Fact) -> None:
    _end(step, fact)
    step.status = "failed"
    step.error = fact.json("error")


def _end(step: StepState, fact: Fact) -> None:
    step.completed_at = fact.at
    if step.gate is not None and step.gate.status == "waiting":
        _settle(step, step.gate, fact)  # not legal, but what is over waits for nothing
        step.gate.status = "cancelled"


def _gate_placed(step: StepState, fact: Fact) -> None:
    if step.status == "pending" and step.gate is None:
        step.status = "waiting"
        step.gate = GateState(
            token=fact.text("token"),
            reason=fact.text("reason"),
            placed_at=fact.at,
            until=fact.text("until"),
            channel=fact.text("channel"),
            key=fact.text("key"),
        )


def _gate_triggered(step: StepState, fact: Fact) -> None:
    gate, by = _gate_of(step, fact), fact.text("by")
    if gate is not None and (gate.status == "waiting" or (_is_past_deadline(gate) and by == "timeout")):
        _settle(step, gate, fact)
        gate.status = "triggered"
        gate.by = by
        gate.payload = fact.json("payload")
        gate.payload_key = fact.text("payloadKey")


def _is_past_deadline(gate: GateState) -> bool:
    return gate.status == "timeout" and gate.reason != "time"


def _gate_timeout(step: StepState, fact: Fact) -> None:
    gate = _gate_of(step, fact)
    if gate is not None and gate.status == "waiting":
        _settle(step, gate, fact)
        gate.status = "timeout"
        gate.by = "timeout"


def _gate_cancelled(step: StepState, fact: Fact) -> None:
    gate = _gate_of(step, fact)
    if gate is not None and gate.status == "waiting":
        _settle(step, gate, fact)
        gate.status = "cancelled"


def _gate_of(step: StepState, fact: Fact) -> GateState | None:
    """The gate before the step, if it is the one that the event means."""
    gate = step.gate
    return gate if gate is not None and gate.token == fact.text("token") else None


def _settle(step: StepState, gate: GateState, fact: Fact) -> None:
    gate.settled_at = fact.at
    if step.status == "waiting":
        step.status = "pending"


TRANSITIONS: Final[Mapping[str, Transition]] = {
    kinds.STEP_SCHEDULED: _scheduled,
    kinds.STEP_ATTEMPT_STARTED: _attempt_started,
    kinds.STEP_ATTEMPT_COMPLETED: _attempt_completed,
    kinds.STEP_ATTEMPT_FAILED: _attempt_failed,
    kinds.STEP_RETRY_SCHEDULED: _retried,
    kinds.STEP_COMPLETED: _completed,
    kinds.STEP_FAILED: _failed,
    kinds.STEP_AWAIT_SCHEDULED: _gate_placed,
    kinds.STEP_AWAIT_TRIGGERED: _gate_triggered,
    kinds.STEP_AWAIT_TIMEOUT: _gate_timeout,
    kinds.STEP_AWAIT_CANCELLED: _gate_cancelled,
}
