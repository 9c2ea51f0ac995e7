"""The course of a run, as it is drawn: when each step waited, stood in a queue, ran, and waited for another attempt.

It follows the fold of the timeline, so that what is late or repeated changes nothing here either.
"""

from dataclasses import dataclass

from fetchbox.flow.v1.event_pb2 import Event
from flows.model.codec import millis
from flows.model.facts import fact_of
from flows.model.state import apply, ended
from flows.model.types import FlowState, StepState


@dataclass(slots=True)
class Phase:
    """One stretch in the life of a step; times are ms since 1970."""

    status: str
    """`waiting`, `scheduled`, `running` or `retrying`."""
    begun: int
    ended: int | None = None
    """None while it lasts."""
    failed: bool = False
    """An attempt that failed."""


class RunCourse:
    """Give it the events of a timeline in their order."""

    def __init__(self) -> None:
        self.state = FlowState()
        self.phases: dict[str, list[Phase]] = {}
        """By step, those that have begun."""
        self.begun = 0
        """When the first event came."""
        self.latest = 0
        """When the last one came."""

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return ended(self.state)

    def told(self, event: Event) -> None:
        """Takes one event in."""
        self.latest = millis(event.ts)
        self.begun = self.begun or self.latest
        apply(self.state, event)
        step = self.state.steps.get(fact_of(event).step)
        if step is not None:
            self._move(step)
        if self.is_over:
            for phases in self.phases.values():
                _close(phases, self.latest)

    def _move(self, step: StepState) -> None:
        """Ends the phase that a step has left, and begins the one that it is in."""
        phases, status = self.phases.setdefault(step.key, []), _status(step)
        if phases and phases[-1].ended is None and phases[-1].status != status:
            phases[-1].failed = phases[-1].status == "running" and step.attempt_status == "failed"
            _close(phases, self.latest)
        if status and (not phases or phases[-1].ended is not None):
            phases.append(Phase(status, self.latest))


def _status(step: StepState) -> str:
    """What a step does; empty where it does nothing that lasts."""
    if step.status in ("waiting", "scheduled", "retrying"):
        return step.status
    return "running" if step.status == "running" and step.attempt_status == "running" else ""


def _close(phases: list[Phase], at: int) -> None:
    if phases and phases[-1].ended is None:
        phases[-1].ended = at
