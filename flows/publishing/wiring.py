"""What connects the Internal Bus with the store: what is published becomes records and projections.

The story of a message: the wiring takes it from the bus if one of its events is of a kind that is stored, works out
what follows from each of them for the projections, and appends all of it to the run in one step. What was published
while an append was on its way leaves together with the next, in one pipeline: the runs of an engine, and log lines, of
which those of one run become one append. Nothing that was stored goes back to the bus.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event
from flows.journal.journal import MOST, Append, Journal, Outcome, new_batch
from flows.model.events import meta_of
from flows.model.kinds import LOG, TIMELINE_KINDS
from flows.model.project import log_patches, project
from flows.model.state import apply
from flows.model.types import Appended, FlowState, Run, RunGoneError, Write
from flows.publishing.bus import InternalBus, Message, Receipt, Unsubscribe
from kernel.clock import Clock, SystemClock
from kernel.errors import FetchboxError, Violation, unavailable
from kernel.log.offsets import START
from kernel.redis.keys import RunKey
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger
from kernel.validation import refusal

_log = get_logger("flows.wiring")

_MOST_BYTES: Final = 64 << 20
"""What waits for the store, lines that are tried again too; more is refused, so that an outage fills no memory."""
_OF_MESSAGE: Final = 2048
"""Bytes of a message beside the data and meta of its events, roughly."""
_AT_ONCE: Final = 500
"""Messages that are stored together."""
_MOST_LINES: Final = MOST // 4
"""Log lines of one append: each has up to three patches."""
_PATIENCE: Final = 30.0
"""Seconds that log lines wait for a store that does not answer."""
_PAUSE: Final = 0.2
_LAST_WORDS: Final = 2.0
"""Seconds that a stop waits for what is still to be stored."""
_NAMES: Final = 10_000
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class _Item:
    """A message that waits."""

    message: Message
    events: tuple[Event, ...]
    """Those of its events that are stored."""
    since: float
    size: int


@dataclass(slots=True)
class _Unit:
    """One append, and who waits for how many of its events."""

    run: Run
    since: float
    writes: list[Write] = field(default_factory=list)
    shares: list[tuple[Receipt, int]] = field(default_factory=list)
    size: int = 0
    append: Append | None = None

    def add(self, item: _Item, writes: Sequence[Write]) -> None:
        self.writes += writes
        self.shares.append((item.message.receipt, len(writes)))
        self.size += item.size

    def sealed(self) -> Append:
        """The append; of log lines always the same one, so that a repetition doubles nothing."""
        if self.append is None:
            self.append = Append(self.run, tuple(self.writes), batch=new_batch())
        return self.append

    def settle(self, outcome: Outcome | Exception) -> None:
        """Tells each who waits what became of its own events."""
        if not isinstance(outcome, Appended):
            for receipt, _ in self.shares:
                receipt.settle(outcome)
            return
        start = 0
        for receipt, count in self.shares:
            receipt.settle(Appended(outcome.fates[start : start + count], outcome.revision))
            start += count


class StoreWiring:
    """A duty: between start and stop, what is published on the bus is stored in the journal."""

    name = "flow-store"

    def __init__(self, bus: InternalBus, journal: Journal, clock: Clock | None = None) -> None:
        self._bus = bus
        self._journal = journal
        self._clock = clock or SystemClock()
        self._waiting: deque[_Item] = deque()
        self._again: list[_Unit] = []
        self._put_off: list[_Item] = []
        self._size = 0
        """Of all that waits."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._detach: Unsubscribe | None = None
        self._task: asyncio.Task[None] | None = None
        self._names: dict[RunKey, str] = {}

    async def start(self) -> None:
        """Begins to take what is published."""
        self._idle.set()
        self._detach = self._bus.attach(self._take)
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def drain(self, grace: float) -> None:
        """Waits until everything that was published is stored; goes on taking what comes."""
        await self._settled(grace)

    async def stop(self) -> None:
        """Takes no more, stores what there is if that is quick, and ends. Safe twice."""
        if self._detach is not None:
            self._detach()
            self._detach = None
        if self._task is not None:
            await self._settled(_LAST_WORDS)
        task, self._task = self._task, None
        await ended(task)
        stopped = unavailable("The service stops; the outcome is open.")
        for unit in self._again:
            unit.settle(stopped)
        for item in (*self._put_off, *self._waiting):
            item.message.receipt.settle(stopped)
        self._again, self._put_off, self._waiting, self._size = [], [], deque(), 0

    async def _settled(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            _log.warn("events_not_stored", waiting=len(self._waiting) + len(self._put_off) + len(self._again))

    def _take(self, message: Message) -> bool:
        events = tuple(event for event in message.events if event.kind in TIMELINE_KINDS)
        if not events or self._task is None or self._task.done():
            return False
        if message.context.fence is None:
            if any(event.kind != LOG for event in events):
                raise ValueError("what changes a run is published under the revision that its publisher has seen")
            if len(events) > _MOST_LINES:
                raise ValueError(f"{len(events)} log lines at once are too many; at most {_MOST_LINES}")
        size = _OF_MESSAGE + sum(len(event.data) + len(event.meta) for event in events)
        if self._size + size > _MOST_BYTES:
            raise unavailable("The store of flows does not keep up.")
        self._size += size
        self._waiting.append(_Item(message, events, self._clock.monotonic(), size))
        self._idle.clear()
        self._wake.set()
        return True

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._again:
                items = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                await self._store(items)
                self._size = self._left()
                if self._again or self._put_off:
                    await self._clock.sleep(_PAUSE)
                    self._waiting.extendleft(reversed(self._put_off))
                    self._put_off = []
            self._idle.set()

    def _left(self) -> int:
        """The size of all that waits."""
        items = chain(self._waiting, self._put_off)
        return sum(item.size for item in items) + sum(unit.size for unit in self._again)

    async def _store(self, items: Sequence[_Item]) -> None:
        units, self._again = self._again, []
        try:
            units += await self._units(items)
            outcomes = await self._journal.append_many([unit.sealed() for unit in units])
        except BaseException as error:
            lost = error if isinstance(error, Exception) else unavailable("The service stops; the outcome is open.")
            for unit in units:
                unit.settle(lost)
            for item in items:
                item.message.receipt.settle(lost)
            if not isinstance(error, Exception):
                raise
            _log.exception("events_not_stored", error)
            return
        for unit, outcome in zip(units, outcomes, strict=True):
            self._conclude(unit, outcome)

    def _conclude(self, unit: _Unit, outcome: Outcome) -> None:
        if unit.sealed().batch and self._may_wait(outcome, unit.since):
            self._again.append(unit)
            return
        if unit.sealed().batch and isinstance(outcome, Exception):
            # That a job says something after its run has ended is nothing to look at.
            tell = _log.debug if isinstance(outcome, RunGoneError) else _log.warn
            tell("log_lines_not_stored", count=len(unit.writes), error=outcome)
        unit.settle(outcome)

    def _may_wait(self, outcome: Outcome | Exception, since: float) -> bool:
        """Whether log lines are tried again: what was published under a fence is its publisher's to repeat."""
        away = isinstance(outcome, FetchboxError) and outcome.reason == REASON_UNAVAILABLE
        return away and self._clock.monotonic() - since < _PATIENCE

    async def _units(self, items: Sequence[_Item]) -> list[_Unit]:
        """The appends of these messages, in their order; those that cannot be are settled."""
        found: list[_Unit] = []
        lines: dict[RunKey, _Unit] = {}
        for item in items:
            try:
                run = await self._run_of(item)
                if item.message.context.fence is None:
                    _add_lines(found, lines, run, item)
                else:
                    lines.pop(run.key, None)
                    found.append(await self._fenced(run, item))
            except Exception as error:  # noqa: BLE001 - it concerns this message alone, and its publisher is told
                if item.message.context.fence is None and self._may_wait(error, item.since):
                    self._put_off.append(item)
                else:
                    item.message.receipt.settle(error)
        return found

    async def _run_of(self, item: _Item) -> Run:
        """The run with the name of its flow, which publishers of log lines need not know."""
        run = item.message.context.run
        if not run.flow_name:
            run = Run(run.flow_id, await self._name_of(run), run.tenant)
        for event in item.events:
            named = meta_of(event).flow_name
            if named not in ("", run.flow_name):
                raise refusal(
                    [Violation("meta.flowName", f"is {named}; the run is one of {run.flow_name}", "event.run")]
                )
        return run

    async def _name_of(self, run: Run) -> str:
        name = self._names.get(run.key)
        if name is None:
            name = await self._journal.name_of(run.key)
            if name is None:
                raise RunGoneError(f"the run {run.flow_id} is unknown, or no longer kept")
            if len(self._names) >= _NAMES:
                self._names.clear()
            self._names[run.key] = name
        return name

    async def _fenced(self, run: Run, item: _Item) -> _Unit:
        context = item.message.context
        state = context.state if context.state is not None else await self._state(run)
        unit = _Unit(run, item.since)
        unit.add(item, list(_projected(state, item.events)))
        unit.append = Append(run, tuple(unit.writes), context.fence, context.wakes, tuple(context.clears))
        if unit.append.records > MOST:
            raise ValueError(f"{len(item.events)} events at once are too many: {unit.append.records} records")
        return unit

    async def _state(self, run: Run) -> FlowState:
        """The run as its timeline has it. It may be newer than the fence: then the append conflicts."""
        state, after = FlowState(), START
        while page := await self._journal.read(run, VIEW_TIMELINE, after, _PAGE):
            for event in page:
                apply(state, event)
            after = page[-1].id
        return state


def _projected(state: FlowState, events: Sequence[Event]) -> Iterator[Write]:
    for event in events:
        state, patches = project(state, event)
        yield Write(event, patches)


def _add_lines(found: list[_Unit], lines: dict[RunKey, _Unit], run: Run, item: _Item) -> None:
    """Adds log lines to the append of their run, or begins one."""
    unit = lines.get(run.key)
    if unit is None or len(unit.writes) + len(item.events) > _MOST_LINES:
        unit = lines[run.key] = _Unit(run, item.since)
        found.append(unit)
    waits = item.message.context.waits
    unit.add(item, [Write(event, log_patches(event, run.key), waits) for event in item.events])
