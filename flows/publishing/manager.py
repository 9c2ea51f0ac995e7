"""The Event Manager: the one way to publish an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fetchbox.errors.v1.errors_pb2 import REASON_FAILED_PRECONDITION
from fetchbox.flow.v1.event_pb2 import Event
from flows.model.checks import check
from flows.model.events import draft, meta_of
from flows.model.kinds import RULES, TIMELINE_KINDS
from flows.model.types import Context
from flows.publishing.bus import NOTHING, InternalBus, Message, Receipt
from kernel.errors import FetchboxError, Violation
from kernel.validation import refusal


class EventManager:
    """Checks events and puts them on the Internal Bus. What is kept of them, and where, is for others to know."""

    def __init__(self, bus: InternalBus, max_bytes: int = 65_536) -> None:
        """`max_bytes`: an event of so many bytes as JSON is refused (`flow_engine.max_event_bytes`)."""
        self._bus = bus
        self._max_bytes = max_bytes

    def publish(
        self,
        kind: str,
        data: Mapping[str, Any] | bytes | None,
        meta: Mapping[str, Any] | bytes | None,
        context: Context,
        subject: str = "",
    ) -> Receipt:
        """Publishes one event, as `publish_all` does."""
        return self.publish_all([draft(kind, data, meta, subject)], context)

    def publish_all(self, events: Sequence[Event], context: Context) -> Receipt:
        """Publishes events of one run; they are delivered when this returns, and stored when its receipt is settled.

        Raises INVALID_PAYLOAD, and delivers nothing, where one breaks a rule of its kind, names another run than the
        context, or is a record of a projection: those follow from events. FAILED_PRECONDITION where an event is to be
        stored and this process has no store.
        """
        for event in events:
            self._check(event, context)
        message = Message(tuple(events), context, Receipt())
        if not self._bus.deliver(message):
            kept = any(event.kind in TIMELINE_KINDS for event in events)
            message.receipt.settle(_no_store() if kept else NOTHING)
        return message.receipt

    def _check(self, event: Event, context: Context) -> None:
        rule = RULES.get(event.kind)
        if rule and event.kind not in TIMELINE_KINDS:
            raise refusal([Violation("kind", "is a record that follows from events; publish those", "event.kind")])
        check(event, self._max_bytes, context.run.timeline)
        if rule is None:
            return
        if not self._bus.has_store:
            raise _no_store()
        meta = meta_of(event)
        for path, named, wanted in (
            ("meta.flowId", meta.flow_id, context.run.flow_id),
            ("meta.flowName", meta.flow_name, context.run.flow_name),
        ):
            if named and wanted and named != wanted:
                raise refusal([Violation(path, f"is {named}, but the event is published for {wanted}", "event.run")])


def _no_store() -> FetchboxError:
    return FetchboxError(REASON_FAILED_PRECONDITION, "No store of flows is connected to this process.")
