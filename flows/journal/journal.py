"""Where the timelines of runs and their projections are kept: what every adapter does.

Records are appended and read; no adapter has a way to change one. An event and the patches that follow from it become
visible together, and the one that ends a run is its last. Lifecycle events stand under a fence: the revision of the run
that their writer has read. `tests/flows` holds one suite that all adapters pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from fetchbox.flow.v1.event_pb2 import (
    VIEW_LOGS,
    VIEW_RUNS,
    VIEW_SNAPSHOT,
    VIEW_STEPS,
    VIEW_TIMELINE,
    Event,
    View,
)
from flows.model.codec import event_of, fields
from flows.model.kinds import FLOW_ENDS
from flows.model.types import Appended, ConflictError, Run, RunGoneError, Write
from kernel.errors import FetchboxError
from kernel.log.offsets import START
from kernel.redis import keys
from kernel.redis.keys import RunKey

VIEWS: Final = (VIEW_TIMELINE, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_LOGS, VIEW_RUNS)
"""The streams that are kept of a run, all of them."""
MOST: Final = 1000
"""The most records of one append, so that none holds up the store for long."""

Outcome: TypeAlias = Appended | ConflictError | RunGoneError | FetchboxError


@dataclass(frozen=True, slots=True)
class Append:
    """What is to be added to one run in one step."""

    run: Run
    writes: tuple[Write, ...]
    fence: int | None = None
    """Only while the revision is this one; None for log lines, which change no revision."""
    wakes: bool = False
    """Whether an engine is to look at the run at once."""
    clears: tuple[str, ...] = ()
    """Fields of the order that are done with."""
    batch: str = ""
    """Names these log lines, so that a repetition after a lost reply stores nothing; made by `new_batch`."""

    @property
    def ends(self) -> bool:
        """Whether these are the last events of the run."""
        return any(write.event.kind in FLOW_ENDS for write in self.writes)

    @property
    def records(self) -> int:
        """How many records it is."""
        return sum(1 + len(write.patches) for write in self.writes)


@dataclass(frozen=True, slots=True)
class Opened:
    """How a start went."""

    created: bool
    """False: there is an order of that id, which stays as it is."""
    revision: int
    digest: str
    """The digest of the order that is there."""


class Journal(Protocol):
    """A store of runs. Adapters raise `FetchboxError` UNAVAILABLE where what is behind them does not answer."""

    async def open(self, run: Run, digest: str, order: Mapping[str, bytes]) -> Opened:
        """Writes the order of a run, once; may be repeated. Its revision is 0 until the first fenced append."""
        ...

    async def name_of(self, key: RunKey) -> str | None:
        """The flow of a run; None where there is no such run (any more)."""
        ...

    async def append(self, append: Append) -> Appended:
        """Adds events with their patches. Log lines beyond the most that a run may have are dropped.

        A line that waits for its attempt is held until the event that it has begun, or is over, and comes right behind
        that; what is still held when the run ends comes before its last event.
        ConflictError: another has appended since the fence was read; also a repetition of what was stored while the
        reply was lost. RunGoneError: there is no such run, it has ended, or lines come before its first event.
        """
        ...

    async def append_many(self, appends: Sequence[Append]) -> list[Outcome]:
        """The same for many runs at once, in this order; what each came to."""
        ...

    async def read(self, run: Run, view: View.ValueType, after: str = START, limit: int = 100) -> list[Event]:
        """Up to `limit` records behind `after`, oldest first; fewer only at the end.

        What retention has removed, and what somebody else has put there, is left out.
        """
        ...

    async def close(self) -> None:
        """Gives back what the adapter opened; safe twice."""
        ...


def stream_of(run: Run, view: View.ValueType) -> str:
    """The name of a stream of a run."""
    if view == VIEW_TIMELINE:
        return run.timeline
    if view == VIEW_SNAPSHOT:
        return keys.flow_snapshot(run.flow_name, run.key)
    if view == VIEW_STEPS:
        return keys.flow_steps(run.key)
    if view == VIEW_LOGS:
        return keys.flow_logs(run.key)
    if view == VIEW_RUNS:
        return keys.flow_runs(run.flow_name)
    raise ValueError(f"{view} is no view of a run")


def new_batch() -> str:
    """A name for a batch of log lines that no other has."""
    return os.urandom(8).hex()


def stored_as(event: Event, stream: str, entry_id: str) -> Event:
    """The event as the store has it: with its id, its stream and the time that its id tells."""
    return event_of(stream, entry_id, fields(event))


def checked(append: Append) -> Append:
    """The append, if a journal takes it; ValueError otherwise: a mistake of the caller's."""
    if not append.writes or append.records > MOST:
        raise ValueError(f"an append has 1 to {MOST} records, not {append.records}")
    return append


def raised(outcome: Outcome) -> Appended:
    """What was stored; raises what an append came to instead."""
    if isinstance(outcome, Appended):
        return outcome
    raise outcome
