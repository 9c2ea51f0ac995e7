"""The tail of one stream: what there is behind a cursor, then what comes, as one read without a gap or a repetition.

The story of one tail: its place, by the cursor or by how much of the past is wanted; what there is behind it; then it
subscribes, and from then on, again and again, looks whether the run has ended, reads up to the present, and takes what
comes. The end of a run and the last records of all its streams are written in one step, so what is read after the end
was seen is complete. A stream without a run, the index of a flow, does not end.

A cursor that is older than a trimmed stream goes on at the oldest record that is left, for flows have no event for a
gap; one behind the newest record, of a store that has lost some, goes on at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fetchbox.flow.v1.event_pb2 import Event
from flows.journal import entries
from flows.model.kinds import FLOW_ENDS
from flows.model.standing import standings
from kernel.log.offsets import START, parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey
from kernel.watch.feed import Feed, FellBehindError, Subscription
from kernel.watch.outages import through_outages

IDLE_SECONDS = 15.0
"""After so long a silence the run is looked at, so that its tail ends when the run is gone."""

Sieve: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]
"""Those of some records that the client is to see."""


@dataclass(frozen=True, slots=True)
class WantedStream:
    """What a client wants of a stream."""

    stream: str
    cursor: str = ""
    """Only what is behind this id; empty: all, or the last ones."""
    last: int | None = None
    """Without a cursor, only so many of what is there."""
    run: RunKey = keys.NO_RUN
    """The run with which the stream ends; empty: it does not end."""
    timeline: str = ""
    """The timeline of that run."""


@dataclass(frozen=True, slots=True)
class TailClient:
    """Who reads."""

    drop: Callable[[], None]
    """Ends the call of a client that does not read."""
    begun: Callable[[], Awaitable[None]]
    """Is called once: from now on the tail is live."""


class StreamTail:
    """One client's read of one stream."""

    def __init__(
        self, clients: RedisClients, feed: Feed[Event], turns: asyncio.Semaphore, wanted: WantedStream, sieve: Sieve
    ) -> None:
        """`turns` are those of all who read their past: more at a time would only wait for connections."""
        self._clients = clients
        self._feed = feed
        self._turns = turns
        self._wanted = wanted
        self._sieve = sieve
        self._place = START

    async def read(self, client: TailClient, accepts: Callable[[str], bool]) -> AsyncIterator[Event]:
        """The records; `accepts` says of a kind whether `sieve` need be asked at all."""
        wanted = self._wanted
        async with self._turns:
            self._place = await self._start()
        async for event in self._past():
            yield event
        with self._feed.subscribe(wanted.stream, self._place, client.drop, lambda it: self._hears(it, accepts)) as live:
            if wanted.timeline != wanted.stream and wanted.run:
                live.add(wanted.timeline, (await entries.last(self._clients, [wanted.timeline]))[0])
            has_begun = False
            while True:
                is_over = await through_outages(self._is_over)
                async for event in self._past():
                    yield event
                if is_over:
                    return
                if not has_begun:
                    await client.begun()
                    has_begun = True
                async for event in self._present(live):
                    yield event

    def _hears(self, event: Event, accepts: Callable[[str], bool]) -> bool:
        is_own = event.stream == self._wanted.stream
        return (is_own and accepts(event.kind)) or (event.stream == self._wanted.timeline and event.kind in FLOW_ENDS)

    async def _start(self) -> str:
        wanted = self._wanted
        if not wanted.cursor and wanted.last is None:
            return START
        if not wanted.cursor and wanted.last:
            return await self._before_last(wanted.last)
        (newest,) = await entries.last(self._clients, [wanted.stream])
        return "{}-{}".format(*min(parse_id(wanted.cursor), parse_id(newest))) if wanted.cursor else newest

    async def _before_last(self, count: int) -> str:
        """The place before the last `count` records that the client is to see; nothing is kept of what is passed."""
        end = ""
        while True:
            page = await entries.before(self._clients, self._wanted.stream, end)
            seen = await self._sieve(page.events)
            if len(seen) >= count:
                return _just_before(seen[count - 1].id)
            count -= len(seen)
            if page.is_last:
                return START
            end = page.place

    async def _past(self) -> AsyncIterator[Event]:
        """What the stream holds behind this tail's place."""
        while True:
            page, seen = await through_outages(self._page)
            for event in seen:
                self._place = event.id
                yield event
            self._place = page.place
            if page.is_last:
                return

    async def _page(self) -> tuple[entries.EntriesPage, list[Event]]:
        async with self._turns:
            (page,) = await entries.behind(self._clients, {self._wanted.stream: self._place})
            return page, await self._sieve(page.events)

    async def _present(self, live: Subscription[Event]) -> AsyncIterator[Event]:
        """What comes, until the run has to be looked at."""
        while True:
            try:
                event = await live.get(IDLE_SECONDS)
            except FellBehindError:
                return
            if event is None:
                return
            if event.stream == self._wanted.stream and parse_id(event.id) > parse_id(self._place):
                self._place = event.id
                for seen in await through_outages(partial(self._sieve, [event])):
                    yield seen
            if event.kind in FLOW_ENDS:
                return

    async def _is_over(self) -> bool:
        """Whether nothing more comes: the run has ended, or is gone."""
        if not self._wanted.run:
            return False
        async with self._turns:
            (run,) = await standings(self._clients, [self._wanted.run])
        return run is None or run.has_ended


def _just_before(entry_id: str) -> str:
    ms, seq = parse_id(entry_id)
    return f"{ms}-{seq - 1}" if seq else f"{ms - 1}-{2**64 - 1}" if ms else START
