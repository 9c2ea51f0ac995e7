"""Counts what happens in runs, where it is published."""

from __future__ import annotations

from collections.abc import Sequence

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds
from kernel.telemetry import metrics

_STEPS = {
    kinds.STEP_COMPLETED: "completed",
    kinds.STEP_FAILED: "failed",
    kinds.STEP_RETRY_SCHEDULED: "retried",
}


def count(events: Sequence[Event], flow_name: str) -> None:
    """Counts events of a run that were stored."""
    metrics.FLOW_TRANSITIONS.inc(len(events))
    flow = metrics.flow(flow_name)
    for event in events:
        kind = event.kind
        if kind in _STEPS:
            metrics.FLOW_STEPS.labels(flow, _STEPS[kind]).inc()
        elif kind in kinds.FLOW_ENDS:
            metrics.FLOWS_ENDED.labels(flow, kinds.FLOW_ENDS[kind]).inc()
        elif kind == kinds.FLOW_START:
            metrics.FLOWS_STARTED.labels(flow).inc()
