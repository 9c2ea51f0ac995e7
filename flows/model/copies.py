"""Copies of what `flows.model.types` holds, field by field: `dataclasses.replace` takes five times as long."""

from __future__ import annotations

from flows.model.types import FlowState, GateState, StepState


def flow_copy(state: FlowState) -> FlowState:
    """A run that can be changed, and have steps added, without changing `state`; the steps are the same ones."""
    return FlowState(
        state.flow_id,
        state.flow_name,
        state.tenant,
        state.status,
        state.queue,
        state.tags,
        state.started_at,
        state.completed_at,
        state.last_event_at,
        state.logs,
        state.log_level,
        state.steps.copy(),
        state.waiting.copy(),
        state.input,
        state.result,
        state.result_key,
        state.error,
        state.last_id,
    )


def step_copy(step: StepState) -> StepState:
    """A step that can be changed, its gate too, without changing `step`."""
    return StepState(
        step.key,
        step.status,
        step.gate and _gate_copy(step.gate),
        step.run_id,
        step.number,
        step.scheduled_at,
        step.backoff_ms,
        step.job_id,
        step.queue,
        step.tries,
        step.attempt,
        step.attempt_status,
        step.started_at,
        step.completed_at,
        step.last_event_at,
        step.logs,
        step.log_level,
        step.result,
        step.result_key,
        step.error,
    )


def _gate_copy(gate: GateState) -> GateState:
    return GateState(
        gate.token,
        gate.reason,
        gate.placed_at,
        gate.until,
        gate.channel,
        gate.key,
        gate.status,
        gate.by,
        gate.settled_at,
        gate.payload,
        gate.payload_key,
    )
