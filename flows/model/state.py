"""What a run is after its events: the fold of its timeline, from which everything else about it is derived.

What does not fit where a run stands (late, repeated, or never legal) changes nothing but when the last event came;
after the end of the run not even that. Log lines are counted wherever they are, so that they can be projected without
knowing the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds
from flows.model.copies import flow_copy, step_copy
from flows.model.facts import Fact, fact_of
from flows.model.step_state import TRANSITIONS, attempt_open, over, released
from flows.model.types import PLACE, FlowState, StepState

__all__ = ["apply", "attempt_open", "counts", "ended", "fold", "folded", "over", "released", "state_of"]

_ENDED: Final = frozenset(kinds.FLOW_ENDS.values())


def ended(state: FlowState) -> bool:
    """Whether the run has ended."""
    return state.status in _ENDED


def state_of(events: Iterable[Event]) -> FlowState:
    """The run whose timeline has these events."""
    state = FlowState()
    for event in events:
        apply(state, event)
    return state


def fold(state: FlowState, event: Event) -> FlowState:
    """The run after one more event. `state` stays as it is; what did not change is shared with it."""
    return folded(state, fact_of(event))


def apply(state: FlowState, event: Event) -> None:
    """`fold` in place, for whoever has `state` alone."""
    _advance(state, fact_of(event))


def folded(state: FlowState, fact: Fact) -> FlowState:
    """`fold` of an event that was read already."""
    after = flow_copy(state)
    step = after.steps.get(fact.step)
    if step is not None:
        after.steps[fact.step] = step_copy(step)
    _advance(after, fact)
    return after


def counts(state: FlowState, fact: Fact) -> bool:
    """Whether the event belongs to the run as it stands: it is of a timeline, and the run has not ended."""
    return fact.kind == kinds.LOG or (state.status not in _ENDED and fact.kind in kinds.TIMELINE_KINDS)


def _advance(state: FlowState, fact: Fact) -> None:
    if not counts(state, fact):
        return
    state.last_event_at = fact.at
    if fact.place != PLACE:
        state.last_id = fact.place
    step = _touched(state, fact) if fact.step else None
    if fact.kind == kinds.LOG:
        _count(state, step, fact)
    elif fact.kind == kinds.FLOW_START:
        _start(state, fact)
    elif fact.kind in kinds.FLOW_ENDS:
        _end(state, fact)
    elif step is not None and not over(step):
        TRANSITIONS[fact.kind](step, fact)
        _note_wait(state, step)


def _touched(state: FlowState, fact: Fact) -> StepState:
    step = state.steps.get(fact.step)
    if step is None:
        step = state.steps[fact.step] = StepState(fact.step)
    step.last_event_at = fact.at
    return step


def _count(state: FlowState, step: StepState | None, fact: Fact) -> None:
    level = fact.text("level")
    for counted in (state, step):
        if counted is not None:
            counted.logs += 1
            counted.log_level = level or counted.log_level


def _start(state: FlowState, fact: Fact) -> None:
    if state.status:
        return
    state.status = "running"
    state.flow_id = fact.meta.flow_id
    state.flow_name = fact.text("flowName")
    state.tenant = fact.text("tenant")
    state.queue = fact.event.subject
    state.tags = fact.meta.tags
    state.started_at = fact.at
    state.input = fact.json("input")


def _end(state: FlowState, fact: Fact) -> None:
    state.status = kinds.FLOW_ENDS[fact.kind]
    state.completed_at = fact.at
    state.result = fact.json("result")
    state.result_key = fact.text("resultKey")
    state.error = fact.json("error")


def _note_wait(state: FlowState, step: StepState) -> None:
    waits = step.status == "waiting"
    if waits != (step.key in state.waiting):
        (state.waiting.append if waits else state.waiting.remove)(step.key)
