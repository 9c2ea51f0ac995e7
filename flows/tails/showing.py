"""Runs as their clients see them (`fetchbox.flow.v1.Flow`): an order with what the projections of its run come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fetchbox.flow.v1.flow_pb2 import Flow, Step
from flows.definitions.definition import order_of_steps
from flows.model.order import NULL, Order

Reduced = Mapping[str, Any]
"""What the patches of a run, or of a step, come to (`flows.model.views`)."""

_OPEN: Final = frozenset(("pending", "waiting", "scheduled", "running", "retrying"))
_WAIT: Final = {"waitingFor": "waiting_for", "waitUntil": "wait_until", "waitToken": "wait_token"}
_TIMES: Final = {"startedAt": "started_at", "completedAt": "completed_at", "lastEventAt": "last_event_at"}
_OF_BOTH: Final = {**_TIMES, **_WAIT, "logsCount": "logs_count", "lastLogLevel": "last_log_level"}
_OF_FLOW: Final = {**_OF_BOTH, "waitStep": "wait_step"}
_OF_STEP: Final = {
    **_OF_BOTH,
    "triesCount": "tries_count",
    "attempt": "attempt",
    "lastAttemptStatus": "last_attempt_status",
    "waiting": "waiting",
}


def status_of(snapshot: Reduced) -> str:
    """How a run stands; one whose first event is still to come is running."""
    return str(snapshot.get("status") or "running")


def listed(order: Order, snapshot: Reduced) -> Flow:
    """A run without its steps, input and result."""
    return Flow(
        flow_id=order.run.flow_id,
        flow_name=order.run.flow_name,
        tenant=order.tenant,
        status=status_of(snapshot),
        queue=order.queue,
        tags=order.tags,
        **_known(snapshot, _OF_FLOW),
    )


def whole(order: Order, snapshot: Reduced, steps: Mapping[str, Reduced], jobs: Mapping[str, str]) -> Flow:
    """A run with its input and all its steps, those that have not begun too. `jobs`: step key -> its last job."""
    flow = listed(order, snapshot)
    if order.input != NULL:
        flow.input = order.input
    is_over = flow.status != "running"
    for key in order_of_steps(order.definition):
        known = steps.get(key, {})
        flow.steps.append(
            Step(
                step_key=key,
                status=_step_status(known, is_over),
                needs=order.definition.steps[key].needs,
                job_id=jobs.get(key, ""),
                **_known(known, _OF_STEP),
            )
        )
    return flow


def _step_status(step: Reduced, is_over: bool) -> str:
    """How a step stands: what the end of its run has kept from going on is cancelled."""
    status = str(step.get("status") or "pending")
    return "cancelled" if is_over and status in _OPEN else status


def _known(reduced: Reduced, names: Mapping[str, str]) -> dict[str, Any]:
    return {field: reduced[name] for name, field in names.items() if reduced.get(name) is not None}
