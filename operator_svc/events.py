"""WatchJob: the events of one job, what there is and then live, as one read with a cursor (seed 004; contracts, SSE).

The story of one watcher: `hello`; a `gap` with the current record if its cursor is older than the stream, or newer than
its last event; then, again and again, the record is read and after it the events up to the present. A record that has
ended has its last event in the stream already, since one script writes both; so if the newest event is a terminal one,
the stream is complete. If it is not, an operator replayed the job in between, and the watcher waits on.
A client that has the last event already gets an empty stream, without `hello`: it need not come again (HTTP 204).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from google.protobuf import json_format

from fetchbox.operator.v1 import job_pb2
from kernel.ledger import JobEvent, JobRecord, Ledger
from kernel.ledger.base import TERMINAL as ENDED
from kernel.log.offsets import START, parse_id
from operator_svc import jobs
from operator_svc.feed import Feed, FellBehindError, Subscription

TERMINAL = frozenset({"done", "error", "canceled"})
"""The types of events that end a job (seed 004)."""
PAGE = 500
IDLE_SECONDS = 15.0
"""After so long a silence the record is looked at, so that a stream ends when the record is gone."""
_BACKFILLS = 8
"""How many watchers read their past at the same time; more would only wait for connections."""


class JobWatches:
    """Everyone who watches a job in this process."""

    def __init__(self, ledger: Ledger, feed: Feed[JobEvent], idle_seconds: float = IDLE_SECONDS) -> None:
        self._ledger = ledger
        self._feed = feed
        self._idle_seconds = idle_seconds
        self._turns = asyncio.Semaphore(_BACKFILLS)

    async def watch(self, job_id: str, last_event_id: str, drop: Callable[[], None]) -> AsyncIterator[job_pb2.JobEvent]:
        """The events after `last_event_id`, or all; `drop` ends a client that does not read. Raises `NOT_FOUND`."""
        async with self._turns:
            record = await jobs.require(self._ledger, job_id)
            foreign = await self._is_foreign(job_id, last_event_id)
            over = await self._is_over(record, last_event_id)
        if over:
            return
        place = START if foreign or not last_event_id else last_event_id
        yield _hello(job_id, place)
        if foreign:
            yield _gap(record)
        watcher = _Watcher(job_id, place, self._ledger, self._turns)
        async for event in watcher.past():
            yield event
        with self._feed.subscribe(job_id, watcher.place, drop) as live:
            async for event in watcher.present(live, self._idle_seconds):
                yield event

    async def _is_over(self, record: JobRecord, last_event_id: str) -> bool:
        if not last_event_id or record.status not in ENDED:
            return False
        newest = await self._ledger.last_events(record.job_id)
        return bool(newest) and newest[0].id == last_event_id and newest[0].type in TERMINAL

    async def _is_foreign(self, job_id: str, last_event_id: str) -> bool:
        """Whether the stream, as it is now, cannot hold the event that the cursor names."""
        if not last_event_id:
            return False
        first = await self._ledger.events(job_id, START, 1)
        newest = await self._ledger.last_events(job_id)
        if not first or not newest:
            return True
        return not parse_id(first[0].id) <= parse_id(last_event_id) <= parse_id(newest[0].id)


class _Watcher:
    def __init__(self, job_id: str, place: str, ledger: Ledger, turns: asyncio.Semaphore) -> None:
        self.place = place
        self._job_id = job_id
        self._ledger = ledger
        self._turns = turns
        self._newest = ""
        self._revision = -1

    async def past(self) -> AsyncIterator[job_pb2.JobEvent]:
        """What the stream holds after this watcher's place."""
        while True:
            async with self._turns:
                page = await self._ledger.events(self._job_id, self.place, PAGE)
            for event in page:
                self._advance(event)
                yield message(event)
            if len(page) < PAGE:
                return

    async def present(self, live: Subscription[JobEvent], idle_seconds: float) -> AsyncIterator[job_pb2.JobEvent]:
        """What comes, until the job has ended and its last event is out, or its record is gone."""
        while True:
            async with self._turns:
                record = await self._ledger.get(self._job_id)
            async for past in self.past():
                yield past
            if self._is_complete(record):
                return
            async for event in self._until_terminal(live, idle_seconds):
                yield event

    async def _until_terminal(self, live: Subscription[JobEvent], idle: float) -> AsyncIterator[job_pb2.JobEvent]:
        while (event := await _next(live, idle)) is not None:
            if parse_id(event.id) <= parse_id(self.place):
                continue
            self._advance(event)
            yield message(event)
            if event.type in TERMINAL:
                return

    def _is_complete(self, record: JobRecord | None) -> bool:
        if record is None:
            return True
        unchanged, self._revision = record.revision == self._revision, record.revision
        # An unchanged ended record has no further event, whatever the newest one is: so an odd cursor ends too.
        return record.status in ENDED and (not self._newest or self._newest in TERMINAL or unchanged)

    def _advance(self, event: JobEvent) -> None:
        self.place = event.id
        self._newest = event.type


async def _next(live: Subscription[JobEvent], idle: float) -> JobEvent | None:
    try:
        return await live.get(idle)
    except FellBehindError:
        return None


def message(event: JobEvent) -> job_pb2.JobEvent:
    """An entry of the stream for the wire, its data byte for byte."""
    return job_pb2.JobEvent(id=event.id, type=event.type, ts=event.ts, step=event.step, data=event.data)


def _hello(job_id: str, last_id: str) -> job_pb2.JobEvent:
    data = json.dumps({"job_id": job_id, "last_id": last_id}, separators=(",", ":"))
    return job_pb2.JobEvent(type="hello", data=data.encode())


def _gap(record: JobRecord) -> job_pb2.JobEvent:
    data = json_format.MessageToJson(jobs.snapshot(record), always_print_fields_with_no_presence=True, indent=None)
    return job_pb2.JobEvent(type="gap", data=data.encode())
