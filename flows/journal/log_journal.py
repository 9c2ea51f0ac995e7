"""The journal over an append-only log, for development and tests: files that are rotated and compressed, or memory.

One process writes. There is no step over several streams here, so a timeline is written first: where the process dies
before its projections are, the next one finds by the timeline what they lack, and adds it before anything else. The
orders of runs are not kept: a run is known by its timeline, and one without events is opened again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fetchbox.flow.v1.event_pb2 import VIEW_RUNS, VIEW_TIMELINE, Event, View
from flows.journal.journal import VIEWS, Append, Opened, Outcome, checked, stored_as, stream_of
from flows.model.codec import event_of, fields
from flows.model.early import Sorted, attempt_of, sorted_out
from flows.model.events import data_of, run_of
from flows.model.kinds import FLOW_ENDS, FLOW_START, LOG
from flows.model.project import project
from flows.model.types import PLACE, STAMP, Appended, ConflictError, FlowState, Patch, Run, RunGoneError, Write
from kernel.errors import FetchboxError
from kernel.log.offsets import START
from kernel.log.store import LogStore
from kernel.redis.keys import RunKey

_PAGE: Final = 500
_BATCHES: Final = 8
"""Batches of log lines of a run that are known, should one be repeated."""


@dataclass(slots=True)
class _Known:
    """A run as its timeline has it."""

    run: Run
    digest: str = ""
    """Empty where the run was opened by an earlier process."""
    revision: int = 0
    """The number of its events that are no log lines."""
    logs: int = 0
    ended: bool = False
    began: dict[str, int] = field(default_factory=dict)
    """Step key -> the last of its attempts that has begun."""
    batches: deque[tuple[str, Appended]] = field(default_factory=lambda: deque(maxlen=_BATCHES))

    def count(self, event: Event) -> None:
        self.logs += event.kind == LOG
        self.revision += event.kind != LOG
        self.ended = self.ended or event.kind in FLOW_ENDS
        attempt = attempt_of(Write(event)) if event.kind != LOG else None
        if attempt:
            self.began[attempt.step] = max(attempt.number, self.began.get(attempt.step, 0))


class LogJournal:
    """A `Journal` over `FileLog` or `MemoryLog`."""

    def __init__(self, log: LogStore, max_logs: int = 10_000) -> None:
        """`max_logs`: log lines of a run beyond so many are left out."""
        self._log = log
        self._max_logs = max_logs
        self._known: dict[RunKey, _Known] = {}
        self._held: defaultdict[RunKey, list[Write]] = defaultdict(list)
        """Log lines whose attempts have not begun; they go with the process, as what waits for the store does."""
        self._locks: defaultdict[RunKey, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self, run: Run, digest: str, order: Mapping[str, bytes]) -> Opened:  # noqa: ARG002 - not kept here
        """Makes a run known; repairs the projections of one that is there."""
        async with self._locks[run.key]:
            known = await self._find(run.key)
            if known is not None:
                return Opened(False, known.revision, known.digest)
            self._known[run.key] = _Known(run, digest)
            return Opened(True, 0, digest)

    async def name_of(self, key: RunKey) -> str | None:
        """The flow of a run; None where there is no such run."""
        async with self._locks[key]:
            known = await self._find(key)
        return known.run.flow_name if known else None

    async def append(self, append: Append) -> Appended:
        """Adds events with their patches, as `Journal.append` says."""
        async with self._locks[append.run.key]:
            return await self._append(checked(append))

    async def append_many(self, appends: Sequence[Append]) -> list[Outcome]:
        """Adds to many runs, one after the other."""
        outcomes: list[Outcome] = []
        for append in appends:
            try:
                outcomes.append(await self.append(append))
            except (ConflictError, RunGoneError, FetchboxError) as error:
                outcomes.append(error)
        return outcomes

    async def read(self, run: Run, view: View.ValueType, after: str = START, limit: int = 100) -> list[Event]:
        """Up to `limit` records behind `after`, oldest first."""
        stream = stream_of(run, view)
        return [event_of(stream, entry.id, entry.fields) for entry in await self._log.read(stream, after, limit)]

    async def close(self) -> None:
        """Closes the log."""
        await self._log.close()

    async def _append(self, append: Append) -> Appended:
        run, known = append.run, await self._find(append.run.key)
        if known is None or known.ended or known.run != run:
            raise RunGoneError(f"the run {run.flow_id} is unknown, or has ended")
        if append.fence is None and known.revision == 0:
            raise RunGoneError(f"the run {run.flow_id} has not begun")
        if append.fence not in (None, known.revision):
            raise ConflictError(f"the run {run.flow_id} has revision {known.revision}, not {append.fence}")
        for batch, appended in known.batches:
            if batch == append.batch != "":
                return appended
        held = self._held[run.key]
        made = sorted_out(append.writes, known.began, held, self._max_logs - known.logs - len(held))
        events = await self._written(run, made)
        for event in events:
            known.count(event)
        fates = (events[fate] if isinstance(fate, int) else fate for fate in made.fates)
        appended = Appended(tuple(fates), known.revision)
        if append.batch:
            known.batches.append((append.batch, appended))
        return appended

    async def _written(self, run: Run, made: Sorted) -> list[Event]:
        timeline, writes = stream_of(run, VIEW_TIMELINE), made.written
        ids = await self._log.append_many(timeline, [fields(write.event) for write in writes]) if writes else []
        self._held[run.key] = made.held
        events = [stored_as(write.event, timeline, entry_id) for write, entry_id in zip(writes, ids, strict=True)]
        pairs = zip(writes, events, strict=True)
        try:
            await self._add(run, [_placed(patch, event) for write, event in pairs for patch in write.patches])
        except BaseException:
            # What the projections lack is found by the next who comes.
            self._known.pop(run.key, None)
            raise
        return events

    async def _add(self, run: Run, patches: Sequence[Patch]) -> None:
        for view in VIEWS[1:]:
            own = [fields(Event(kind=patch.kind, data=patch.data)) for patch in patches if patch.view == view]
            if own:
                await self._log.append_many(stream_of(run, view), own)

    async def _find(self, key: RunKey) -> _Known | None:
        """The run; of one that this process has not seen yet, the projections are repaired."""
        known = self._known.get(key)
        if known is not None:
            return known
        events = await self._whole(Run.of(key, ""), VIEW_TIMELINE)
        if not events or events[0].kind != FLOW_START:
            return None
        known = _Known(Run.of(key, str(data_of(events[0]).get("flowName", ""))))
        for event in events:
            known.count(event)
        await self._repair(known.run, events)
        self._known[key] = known
        return known

    async def _repair(self, run: Run, events: Sequence[Event]) -> None:
        """Adds what the projections lack: they hold what follows from the timeline, in its order, up to some place."""
        state, wanted = FlowState(), list[Patch]()
        for event in events:
            state, patches = project(state, event)
            wanted += [_placed(patch, event) for patch in patches]
        lacking: list[Patch] = []
        for view in VIEWS[1:]:
            stored = await self._whole(run, view)
            if view == VIEW_RUNS:
                stored = [record for record in stored if run_of(data_of(record)) == run.key]
            lacking += [patch for patch in wanted if patch.view == view][len(stored) :]
        await self._add(run, lacking)

    async def _whole(self, run: Run, view: View.ValueType) -> list[Event]:
        events: list[Event] = []
        after = START
        while page := await self.read(run, view, after, _PAGE):
            events += page
            after = page[-1].id
        return events


def _placed(patch: Patch, event: Event) -> Patch:
    """The patch with the time and the id of its event."""
    data = patch.data.replace(STAMP.encode(), event.ts.encode()).replace(PLACE.encode(), event.id.encode())
    return Patch(patch.view, patch.kind, data)
