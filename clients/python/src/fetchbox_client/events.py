"""Events of jobs and flow runs, their JSON read."""

import json
from dataclasses import dataclass
from typing import Any

from fetchbox.flow.v1.event_pb2 import Event as FlowRecord
from fetchbox.flow.v1.flow_pb2 import Frame
from fetchbox.operator.v1.job_pb2 import JobEvent

ENDS = frozenset({"done", "error", "canceled"})
"""The types of a job's last event."""
FLOW_ENDS = frozenset({"flow.complete", "flow.failed", "flow.cancelled"})
"""The kinds of a run's last event."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job. `hello` and `gap` have no id."""

    id: str
    type: str
    ts: int
    """When, ms since the epoch."""
    step: str
    data: Any

    @property
    def is_end(self) -> bool:
        """Whether it ends its job."""
        return self.type in ENDS

    @classmethod
    def of(cls, event: JobEvent) -> "Event":
        """The event as it came."""
        return cls(event.id, event.type, event.ts, event.step, read_json(event.data))


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """One event of a flow run."""

    id: str
    kind: str
    ts: str
    """When, ISO 8601."""
    stream: str
    subject: str
    data: Any
    meta: dict[str, Any]

    @property
    def is_end(self) -> bool:
        """Whether it ends its run."""
        return self.kind in FLOW_ENDS

    @classmethod
    def of(cls, frame: Frame) -> "FlowEvent":
        """The event of a frame."""
        record: FlowRecord = frame.record
        meta = read_json(record.meta) or {}
        return cls(record.id, record.kind, record.ts, record.stream, record.subject, read_json(record.data), meta)


def read_json(text: bytes) -> Any:
    """The value of a field that holds JSON; None for an empty one."""
    return json.loads(text) if text else None


def write_json(value: Any) -> bytes:
    """A value as a field that holds JSON; bytes are taken as they are. Raises ValueError for what is no JSON."""
    if isinstance(value, bytes):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
