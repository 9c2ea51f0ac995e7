"""What has become of a gate: how it stands for its clients, and what those are told who come too late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1.flow_pb2 import Gate
from flows.gates.deliveries import By, Hit
from flows.model.order import Order
from flows.model.state import ended
from flows.model.types import FlowState, GateState
from kernel.errors import FetchboxError, not_found

_BY: Final[dict[str, By]] = {"webhook": "webhook", "event": "event", "manual": "manual"}
_HOW: Final = {"timeout": "its time was over", "cancelled": "it was cancelled", "manual": "it was opened by hand"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as it was read."""

    order: Order
    state: FlowState

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.order.ended_ms is not None or ended(self.state)

    def gate(self, step_key: str) -> GateState | None:
        """The gate of a step, once it is placed. `NOT_FOUND` where the step has none."""
        spec = self.order.definition.steps.get(step_key)
        if spec is None or not spec.HasField("gate"):
            raise not_found(f"The run {self.order.run.flow_id} has no gate before a step {step_key}.")
        step = self.state.steps.get(step_key)
        return step.gate if step is not None else None

    def hit(self, step_key: str) -> Hit | None:
        """What opens the gate of a step as soon as somebody looks at the run."""
        stored = self.order.hits.get(step_key)
        return Hit.decode(stored) if stored is not None else None


def opened(seen: Seen, step_key: str, hit: Hit) -> Gate | None:
    """The gate, where this very hit has opened it already, or is about to; None where nothing has settled it yet.

    `GONE` where something else has, or the run has ended; `NOT_FOUND` where the step has no gate.
    """
    gate, first = seen.gate(step_key), seen.hit(step_key)
    if gate is not None and gate.status != "waiting":
        if gate.status == "triggered" and _hit_of(gate) == hit:
            return told(seen, step_key)
        raise gone(step_key, gate.by if gate.status == "triggered" else gate.status)
    if first == hit:
        return told(seen, step_key, by=hit.by)
    if first is not None:
        raise gone(step_key, first.by)
    if seen.over:
        raise gone(step_key)
    return None


def cancelled(seen: Seen, step_key: str) -> Gate | None:
    """The gate, where it is cancelled; None where it waits and can be. Raises as `opened` does.

    `FAILED_PRECONDITION` where it is not placed yet.
    """
    gate, first = seen.gate(step_key), seen.hit(step_key)
    if gate is not None and gate.status == "cancelled":
        return told(seen, step_key)
    if gate is not None and gate.status != "waiting":
        raise gone(step_key, gate.by or gate.status)
    if first is not None:
        raise gone(step_key, first.by)
    if seen.over:
        raise gone(step_key)
    if gate is None:
        raise FetchboxError(
            errors_pb2.REASON_FAILED_PRECONDITION,
            f"the gate before {step_key} is not placed yet; cancel the run instead, or wait until it is",
        )
    return None


def told(seen: Seen, step_key: str, by: str = "") -> Gate:
    """A gate as its clients see it; `by`: what is about to open it."""
    gate, spec = seen.gate(step_key), seen.order.definition.steps[step_key].gate
    view = Gate(flow_id=seen.order.run.flow_id, step_key=step_key, reason=spec.reason, state="expected")
    if gate is not None:
        view.state, view.token = gate.status, gate.token
        by = by or gate.by
        if gate.settled_at:
            view.settled_at = gate.settled_at
    if by:
        view.by = by
    return view


def gone(step_key: str, how: str = "") -> FetchboxError:
    """The gate is settled: by whom or what, or by the end of its run."""
    told_how = _HOW.get(how, f"it was opened by {how}") if how else "the run has ended"
    return FetchboxError(errors_pb2.REASON_GONE, f"the gate before {step_key} is settled: {told_how}")


def _hit_of(gate: GateState) -> Hit | None:
    by = _BY.get(gate.by)
    return Hit(by, gate.payload, gate.payload_key) if by is not None else None
