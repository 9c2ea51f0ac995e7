"""The tail of many runs by kind, live from now: no cursor, but no event of a run is lost that begins after it did.

The story of one tail: it notes the end of each flow's index, then the runs that engines still have to look at and the
end of each one's timeline; runs that were indexed meanwhile have begun since, so they are read from their beginning.
Then it takes what comes: an entry of an index is a new run, whose timeline is read from its beginning and followed from
there; the last event of a run ends that; the first run of a flow that had none is found within a second. Of each run it
knows its place, so that a client that falls behind reads on from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from fetchbox.flow.v1.event_pb2 import Event
from flows.journal import entries
from flows.model.events import data_of, run_of
from flows.model.kinds import FLOW_ENDS
from flows.model.standing import RunStanding, standings
from flows.tails.stream_tail import TailClient
from kernel.clock import Clock
from kernel.log.offsets import START, parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey
from kernel.watch.feed import Feed, FellBehindError, Subscription

T = TypeVar("T")
_LOOK_SECONDS: Final = 1.0
"""How often new names of flows are looked for."""
_AUDIT_SECONDS: Final = 60.0
"""How often runs are looked for that are gone without an end."""
_RUNS: Final = 500
"""Runs that are looked at in one round trip."""
_TOGETHER: Final = 50
"""Streams that are read in one round trip."""
_COUNT: Final = 20
"""Entries of each of them."""


class KindTail:
    """One client's read of many timelines."""

    def __init__(
        self,
        clients: RedisClients,
        feed: Feed[Event],
        clock: Clock,
        *,
        flow_name: str,
        accepts: Callable[[str], bool],
        may_see: Callable[[RunStanding], bool],
    ) -> None:
        """An empty `flow_name` is all flows; `accepts` says which kinds, `may_see` which runs the client is to see."""
        self._clients = clients
        self._feed = feed
        self._clock = clock
        self._flow_name = flow_name
        self._accepts = accepts
        self._may_see = may_see
        self._indexes: dict[str, str] = {}
        """By stream, the place in each index."""
        self._runs: dict[str, str] = {}
        """By stream, the place in the timeline of each run that is followed."""
        self._ids: dict[str, RunKey] = {}
        """By stream, each such run."""
        self._to_be_indexed: set[RunKey] = set()
        """Runs that are followed already, and whose entry in an index is still to come."""
        self._is_behind = False

    async def read(self, client: TailClient) -> AsyncIterator[Event]:
        """The events; it does not end."""
        with self._feed.open("flow-kinds", client.drop, self._hears) as live:
            await self._begin(live)
            await client.begun()
            looked = audited = self._clock.monotonic()
            is_behind = True
            while True:
                async for event in self._past(live) if is_behind else self._present(live):
                    yield event
                is_behind, now = self._is_behind, self._clock.monotonic()
                self._is_behind = False
                if now - looked >= _LOOK_SECONDS and not self._flow_name:
                    looked = now
                    is_behind = await self._find_names(live, START) or is_behind
                if now - audited >= _AUDIT_SECONDS:
                    audited = now
                    async for event in self._audit(live):
                        yield event

    def _hears(self, event: Event) -> bool:
        return event.stream in self._indexes or event.kind in FLOW_ENDS or self._accepts(event.kind)

    async def _begin(self, live: Subscription[Event]) -> None:
        """Notes where everything stands. In this order: nothing that begins in between is missed, or read twice."""
        await self._find_names(live)
        due = await self._clients.commands.execute_command("ZRANGE", keys.FLOWS_DUE, 0, -1)
        places: dict[RunKey, str] = {}
        for page in _pages([RunKey(member.decode()) for member in due], _RUNS):
            running = [key for key, run in (await self._seen(page)).items() if not run.has_ended]
            newest = await entries.last(self._clients, [keys.flow_timeline(key) for key in running])
            places |= zip(running, newest, strict=True)
        await self._find_names(live, START)
        indexed = [_run_of(record) async for record in self._indexed()]
        self._to_be_indexed = {key for key, place in places.items() if place == START}.difference(indexed)
        self._follow(places | dict.fromkeys(await self._seen(indexed), START), live)

    async def _find_names(self, live: Subscription[Event], place: str = "") -> bool:
        """Reads the indexes of flows that are new here, from a place or from their ends; whether there are any."""
        names = [self._flow_name]
        if not self._flow_name:
            names = [
                name.decode() for name in await self._clients.commands.execute_command("SMEMBERS", keys.FLOW_NAMES)
            ]
        found = [index for name in names if (index := keys.flow_runs(name)) not in self._indexes]
        places = [place] * len(found) if place else await entries.last(self._clients, found)
        for index, after in zip(found, places, strict=True):
            self._indexes[index] = after
            live.add(index, after)
        return bool(found)

    async def _seen(self, runs: Sequence[RunKey]) -> dict[RunKey, RunStanding]:
        """Those of some runs that are to be followed."""
        found = zip(runs, await standings(self._clients, runs), strict=True)
        return {
            key: run
            for key, run in found
            if run is not None and self._flow_name in ("", run.flow_name) and self._may_see(run)
        }

    def _follow(self, places: Mapping[RunKey, str], live: Subscription[Event]) -> list[str]:
        """Follows runs from these places; their streams."""
        for key, place in places.items():
            stream = keys.flow_timeline(key)
            self._runs[stream], self._ids[stream] = place, key
            live.add(stream, place)
        return [keys.flow_timeline(key) for key in places]

    def _leave(self, stream: str, live: Subscription[Event]) -> None:
        live.remove(stream)
        del self._runs[stream], self._ids[stream]

    async def _present(self, live: Subscription[Event]) -> AsyncIterator[Event]:
        """What the next piece of news comes to, if one comes."""
        try:
            news = await live.get(_LOOK_SECONDS)
        except FellBehindError:
            self._is_behind = True
            return
        if news is None:
            return
        stream = news.stream
        if stream in self._indexes and parse_id(news.id) > parse_id(self._indexes[stream]):
            self._indexes[stream] = news.id
            async for event in self._began([_run_of(news)], live):
                yield event
        elif stream in self._runs and parse_id(news.id) > parse_id(self._runs[stream]) and self._passes(news, live):
            yield news

    def _passes(self, event: Event, live: Subscription[Event]) -> bool:
        """Moves on behind an event; whether it is to be seen."""
        self._runs[event.stream] = event.id
        if event.kind in FLOW_ENDS:
            self._leave(event.stream, live)
        return self._accepts(event.kind)

    async def _past(self, live: Subscription[Event]) -> AsyncIterator[Event]:
        """Everything up to the present, of all indexes and all runs."""
        begun = [_run_of(record) async for record in self._indexed()]
        async for event in self._began(begun, live):
            yield event
        async for event in self._timelines(tuple(self._runs), live):
            yield event

    async def _indexed(self) -> AsyncIterator[Event]:
        """What the indexes hold behind their places."""
        wanted = tuple(self._indexes)
        while wanted:
            pages = await entries.behind(self._clients, {index: self._indexes[index] for index in wanted})
            for index, page in zip(wanted, pages, strict=True):
                self._indexes[index] = page.place
                for record in page.events:
                    yield record
            wanted = tuple(index for index, page in zip(wanted, pages, strict=True) if not page.is_last)

    async def _began(self, runs: Sequence[RunKey], live: Subscription[Event]) -> AsyncIterator[Event]:
        """The events of runs that have begun, up to the present."""
        new = [key for key in runs if key not in self._to_be_indexed and keys.flow_timeline(key) not in self._runs]
        self._to_be_indexed.difference_update(runs)
        streams = self._follow(dict.fromkeys(await self._seen(new), START), live)
        async for event in self._timelines(streams, live):
            yield event

    async def _timelines(self, streams: Sequence[str], live: Subscription[Event]) -> AsyncIterator[Event]:
        for some in _pages(streams, _TOGETHER):
            wanted = [stream for stream in some if stream in self._runs]
            while wanted:
                pages = await entries.behind(self._clients, {name: self._runs[name] for name in wanted}, _COUNT)
                for stream, page in zip(wanted, pages, strict=True):
                    for event in page.events:
                        if self._passes(event, live):
                            yield event
                    if stream in self._runs:
                        self._runs[stream] = page.place
                wanted = [
                    stream
                    for stream, page in zip(wanted, pages, strict=True)
                    if not page.is_last and stream in self._runs
                ]

    async def _audit(self, live: Subscription[Event]) -> AsyncIterator[Event]:
        """Leaves the runs that have ended or are gone without that anything was heard of it."""
        for page in _pages(tuple(self._ids.items()), _RUNS):
            found = await standings(self._clients, [key for _, key in page])
            over = [stream for (stream, _), run in zip(page, found, strict=True) if run is None or run.has_ended]
            async for event in self._timelines(over, live):
                yield event
            for stream in over:
                if stream in self._runs:
                    self._leave(stream, live)


def _run_of(record: Event) -> RunKey:
    """The run that an entry of an index names."""
    return run_of(data_of(record))


def _pages(items: Sequence[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page
