"""A run as its projections show it: what reducing their patches comes to.

Fields are those of the patches, with `logsCount` and `triesCount` where those have deltas. What is not known yet, a
count of 0, and what `null` has cleared are left out.
"""

from __future__ import annotations

from typing import Any

from flows.model.types import FlowState, GateState, StepState

View = dict[str, Any]

_UNBEGUN = frozenset(("pending", "waiting"))


def snapshot(state: FlowState) -> View:
    """What the patches of the run's snapshot come to."""
    return _known(
        status=state.status,
        **identity(state),
        startedAt=state.started_at,
        completedAt=state.completed_at,
        lastEventAt=state.last_event_at,
        logsCount=state.logs,
        lastLogLevel=state.log_level,
        steps={key: shown for key, step in state.steps.items() if (shown := outline(step))},
        **wait(state),
    )


def steps(state: FlowState) -> dict[str, View]:
    """What the patches of the run's steps come to, by step."""
    return {key: _step(step) for key, step in state.steps.items()}


def _step(step: StepState) -> View:
    return _known(
        stepKey=step.key,
        startedAt=step.started_at,
        completedAt=step.completed_at,
        lastEventAt=step.last_event_at,
        logsCount=step.logs,
        lastLogLevel=step.log_level,
        triesCount=step.tries,
    ) | bearing(step)


def identity(state: FlowState) -> View:
    """Which run it is."""
    return _known(flowName=state.flow_name, flowId=state.flow_id, queue=state.queue)


def outline(step: StepState) -> View:
    """What the run's snapshot says of a step; nothing before it is scheduled or over."""
    status = "" if step.status in _UNBEGUN else step.status
    return _known(triesCount=step.tries, lastAttempt=step.attempt, status=status)


def wait(state: FlowState) -> View:
    """What the run's snapshot says of gates: of those that are active, the one that was placed last."""
    if not state.waiting:
        return {}
    key = state.waiting[-1]
    return {**_gate(state.steps[key].gate), "waitStep": key}


def bearing(step: StepState) -> View:
    """How a step, its attempt and its gate stand. While nothing but log lines has come of it, there is no status."""
    status = "" if step.status == "pending" and step.gate is None else step.status
    shown = _known(status=status, attempt=step.attempt, lastAttemptStatus=step.attempt_status)
    if step.gate is not None:
        shown["waiting"] = step.gate.status == "waiting"
        shown.update(_gate(step.gate))
    return shown


def _gate(gate: GateState | None) -> View:
    """An active gate; nothing of one that is settled."""
    if gate is None or gate.status != "waiting":
        return {}
    return _known(waitingFor=gate.reason, waitUntil=gate.until, waitToken=gate.token)


def _known(**fields: Any) -> View:
    return {name: value for name, value in fields.items() if value}
