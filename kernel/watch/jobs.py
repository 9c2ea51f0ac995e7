"""WatchJob: the events of one job, what there is and then live, as one read with a cursor.

The story of one watcher: `hello`; a `gap` with the current record if its cursor is older than the stream, or newer than
its last event; then, again and again, a look at the record and after it the events up to the present. The stream is
complete with its terminal event, whatever the record says, since workers that are not FetchBox's write the two in
separate steps; only a replay behind it opens the job again, and other late news of a worker that was overtaken are left
out. A record that has ended without such an event, or that is gone, ends the stream too.
A client that has the last event already gets an empty stream, without `hello`: it need not come again (HTTP 204).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeAlias

import orjson

from fetchbox.operator.v1 import job_pb2
from kernel.errors import no_job
from kernel.ledger import JobEvent, JobRecord, Ledger
from kernel.ledger.base import TERMINAL as ENDED
from kernel.ledger.events import event_of
from kernel.log.offsets import START, parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.watch.feed import Feed, FellBehindError, Subscription
from kernel.watch.outages import through_outages
from kernel.watch.streams import StreamSource

TERMINAL = frozenset({"done", "error", "canceled"})
"""The types of events that end a job."""
REOPENED = "replayed"
"""The type of the event that takes the end of a job back."""
PAGE = 500
_LAST_NUMBER = 2**64 - 1
"""The highest that a part of the id of an entry can be."""
IDLE_SECONDS = 15.0
"""After so long a silence the record is looked at, so that a stream ends when the record is gone."""
_BACKFILLS = 8
"""How many watchers read their past at the same time; more would only wait for connections."""

Snapshot: TypeAlias = Callable[[JobRecord], bytes]
"""The current record as clients of the service know it, a JSON object: the data of a `gap`."""
Check: TypeAlias = Callable[[JobRecord], bool]
"""Whether the caller may see the job."""


def anyone(_record: JobRecord) -> bool:
    """The check of a service whose callers see every job."""
    return True


class EventSource(StreamSource[JobEvent]):
    """Reads the events of all watched jobs for a feed; its channels are job ids."""

    def __init__(self, clients: RedisClients, name: str) -> None:
        super().__init__(clients, name, lambda _, rows: [event_of(*row) for row in rows], keys.job_events)


class JobWatches:
    """Everyone who watches a job in this process."""

    def __init__(self, ledger: Ledger, feed: Feed[JobEvent], snapshot: Snapshot) -> None:
        self._ledger = ledger
        self._feed = feed
        self._snapshot = snapshot
        self._turns = asyncio.Semaphore(_BACKFILLS)

    async def watch(
        self, job_id: str, last_event_id: str, drop: Callable[[], None], may_see: Check = anyone
    ) -> AsyncIterator[job_pb2.JobEvent]:
        """The events after `last_event_id`, or all; `drop` ends a client that does not read.

        Raises `NOT_FOUND` for an id that is unknown, whose record is gone, or that `may_see` refuses.
        """
        async with self._turns:
            record = await self._ledger.get(job_id)
            if record is None or not may_see(record):
                raise no_job(job_id)
            place = await self._place(job_id, last_event_id)
        if place.is_end:
            return
        yield _hello(job_id, place.cursor)
        if place.is_foreign:
            yield job_pb2.JobEvent(type="gap", data=self._snapshot(record))
        watcher = _Watcher(job_id, place, self._ledger, self._turns)
        async for event in watcher.past():
            yield event
        with self._feed.subscribe(job_id, watcher.place, drop) as live:
            async for event in watcher.present(live):
                yield event

    async def _place(self, job_id: str, cursor: str) -> "_Place":
        """Where a client with this cursor goes on."""
        if not cursor:
            return _Place()
        first = await self._ledger.events(job_id, START, 1)
        newest = await self._ledger.last_events(job_id)
        place = parse_id(cursor)
        if not first or not newest or not parse_id(first[0].id) <= place <= parse_id(newest[0].id):
            return _Place(is_foreign=True)
        if max(place) > _LAST_NUMBER:
            return _Place(is_foreign=True)
        known = await self._ledger.event_at(job_id, cursor)
        if known is None:
            return _Place(cursor)
        if known.type not in TERMINAL:
            return _Place(cursor, known=True)
        later = await self._ledger.events(job_id, cursor, PAGE)
        return _Place(cursor, known=True, ended=True, is_end=all(event.type != REOPENED for event in later))


@dataclass(frozen=True, slots=True)
class _Place:
    """A client's place in a stream."""

    cursor: str = START
    is_foreign: bool = False
    """The stream, as it is now, cannot hold the event that the client named."""
    is_end: bool = False
    """The client has the job's last event."""
    known: bool = False
    """The event of the cursor is there."""
    ended: bool = False
    """It is a terminal one."""


class _Watcher:
    def __init__(self, job_id: str, place: _Place, ledger: Ledger, turns: asyncio.Semaphore) -> None:
        self.place = place.cursor
        self._job_id = job_id
        self._ledger = ledger
        self._turns = turns
        self._has_events = place.known
        self._ended = place.ended
        self._seen: tuple[str, str, str] | None = None

    async def past(self) -> AsyncIterator[job_pb2.JobEvent]:
        """What the stream holds after this watcher's place."""
        while True:
            page = await through_outages(self._page)
            for event in page:
                if self._takes(event):
                    yield message(event)
            if len(page) < PAGE:
                return

    async def _page(self) -> list[JobEvent]:
        async with self._turns:
            return await self._ledger.events(self._job_id, self.place, PAGE)

    async def _state(self) -> tuple[str, str, str] | None:
        async with self._turns:
            return await self._ledger.state(self._job_id)

    async def present(self, live: Subscription[JobEvent]) -> AsyncIterator[job_pb2.JobEvent]:
        """What comes, until the job has ended and its last event is out, or its record is gone."""
        while True:
            state = await through_outages(self._state)
            async for past in self.past():
                yield past
            if self._is_complete(state):
                return
            async for event in self._until_terminal(live):
                yield event

    async def _until_terminal(self, live: Subscription[JobEvent]) -> AsyncIterator[job_pb2.JobEvent]:
        while (event := await _next(live)) is not None:
            if parse_id(event.id) > parse_id(self.place) and self._takes(event):
                yield message(event)
            if self._ended:
                return

    def _is_complete(self, state: tuple[str, str, str] | None) -> bool:
        if state is None or self._ended:
            return True
        unchanged, self._seen = state == self._seen, state
        # Some write the end before its event, but not by a whole silence. Where there is no event at all the stream is
        # gone, and there is none to wait for.
        return state[0] in ENDED and (unchanged or not self._has_events)

    def _takes(self, event: JobEvent) -> bool:
        """Moves on behind an event; whether it is to be shown."""
        self.place, self._has_events = event.id, True
        if self._ended and event.type != REOPENED:
            return False
        self._ended = event.type in TERMINAL
        return True


async def _next(live: Subscription[JobEvent]) -> JobEvent | None:
    try:
        return await live.get(IDLE_SECONDS)
    except FellBehindError:
        return None


def message(event: JobEvent) -> job_pb2.JobEvent:
    """An entry of the stream for the wire, its data byte for byte."""
    return job_pb2.JobEvent(id=event.id, type=event.type, ts=event.ts, step=event.step, data=event.data)


def _hello(job_id: str, last_id: str) -> job_pb2.JobEvent:
    return job_pb2.JobEvent(type="hello", data=orjson.dumps({"job_id": job_id, "last_id": last_id}))
