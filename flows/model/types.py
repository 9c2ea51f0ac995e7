"""What the parts of flows hand each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from fetchbox.flow.v1.event_pb2 import Event, View
from kernel.redis import keys
from kernel.redis.keys import RunKey

STAMP: Final = "<ts>"
"""Stands for the time of an event, in patches and in states, until the store has given it one."""
PLACE: Final = "<id>"
"""Stands for the id of an event, in index records, until the store has given it one."""

Reason: TypeAlias = Literal["time", "webhook", "event", "manual"]
GateStatus: TypeAlias = Literal["waiting", "triggered", "timeout", "cancelled"]
FlowStatus: TypeAlias = Literal["", "running", "completed", "failed", "cancelled"]
StepStatus: TypeAlias = Literal["pending", "waiting", "scheduled", "running", "retrying", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class Run:
    """Which run: what the names of its streams are made of."""

    flow_id: str
    flow_name: str
    tenant: str = ""
    """Whose it is; two tenants may have runs of the same id."""

    @classmethod
    def of(cls, key: RunKey, flow_name: str) -> Run:
        """The run that has this name in keys."""
        tenant, flow_id = keys.run_parts(key)
        return cls(flow_id, flow_name, tenant)

    @property
    def key(self) -> RunKey:
        """Its name in keys."""
        return keys.run(self.tenant, self.flow_id)

    @property
    def timeline(self) -> str:
        """The name of its timeline."""
        return keys.flow_timeline(self.key)


@dataclass(slots=True)
class GateState:
    """A gate as the timeline has it."""

    token: str
    reason: str
    placed_at: str
    until: str = ""
    channel: str = ""
    key: str = ""
    status: GateStatus = "waiting"
    by: str = ""
    settled_at: str = ""
    payload: bytes | None = None
    payload_key: str = ""


@dataclass(slots=True)
class StepState:
    """A step as the timeline has it; `pending` where it has no event."""

    key: str
    status: StepStatus = "pending"
    gate: GateState | None = None
    run_id: str = ""
    """`stepRunId` of the attempt that is scheduled, runs, or was the last."""
    number: int = 0
    """The number of that attempt."""
    scheduled_at: str = ""
    """When that attempt was scheduled."""
    backoff_ms: int = 0
    """How long after that it is to be sent."""
    job_id: str = ""
    queue: str = ""
    tries: int = 0
    attempt: int = 0
    attempt_status: str = ""
    started_at: str = ""
    completed_at: str = ""
    last_event_at: str = ""
    logs: int = 0
    log_level: str = ""
    result: bytes | None = None
    result_key: str = ""
    error: bytes | None = None


@dataclass(slots=True)
class FlowState:
    """A run as its timeline has it: the fold of all its events."""

    flow_id: str = ""
    flow_name: str = ""
    tenant: str = ""
    status: FlowStatus = ""
    queue: str = ""
    tags: tuple[str, ...] = ()
    started_at: str = ""
    completed_at: str = ""
    last_event_at: str = ""
    logs: int = 0
    log_level: str = ""
    steps: dict[str, StepState] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """The steps whose gates are active, in the order in which the gates were placed."""
    input: bytes | None = None
    result: bytes | None = None
    result_key: str = ""
    error: bytes | None = None
    last_id: str = "0-0"
    """The last event that was folded in."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One record of a projection. Its data may hold `STAMP` and `PLACE`, which stand for those of its event."""

    view: View.ValueType
    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """One event of a timeline with its projections."""

    event: Event
    patches: tuple[Patch, ...] = ()
    waits: bool = False
    """Of a log line: whether it comes behind the start of its attempt, and is held until that is in the timeline."""


@dataclass(frozen=True, slots=True)
class Context:
    """What goes along with events that are published for a run."""

    run: Run
    state: FlowState | None = None
    """The run before these events, where the publisher knows it; it is not changed."""
    fence: int | None = None
    """They are stored only while the run's revision is this one; None for what may come at any time, as logs do."""
    wakes: bool = False
    """Whether an engine is to look at the run at once."""
    clears: Sequence[str] = ()
    """Fields of the run's order that are done with (`hit:<stepKey>`), removed in the same step."""
    waits: bool = False
    """Whether these log lines come behind the start of their attempt, however late its writer hears of that."""


Fate: TypeAlias = Event | Literal["held", "dropped"]
"""What becomes of an event: it is stored; or, of a log line, waits for its attempt; or is one too many."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of each event, in order, and the revision of the run afterwards."""

    fates: tuple[Fate, ...]
    revision: int

    @property
    def events(self) -> tuple[Event, ...]:
        """The canonical events, as they were stored."""
        return tuple(fate for fate in self.fates if isinstance(fate, Event))

    @property
    def dropped(self) -> int:
        """How many log lines there was no room for."""
        return self.fates.count("dropped")


class ConflictError(Exception):
    """The run has another revision than the fence said: read it again and decide anew."""


class RunGoneError(Exception):
    """There is no such run (any more), or it has ended and takes no more events."""
