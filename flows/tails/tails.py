"""The Store Bus: the streams of flows that are stored, tailed for clients in any process.

Nothing reaches a client but what was read from a stream, with its id and its stream. However many clients there are, a
process waits for Redis on two connections: one for the tails of single streams, one for those of many runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import lru_cache
from typing import Final

from fetchbox.flow.v1.event_pb2 import VIEW_RUNS, VIEW_TIMELINE, Event, View
from fetchbox.flow.v1.flow_pb2 import Frame
from flows.journal import entries
from flows.journal.journal import stream_of
from flows.model import kinds
from flows.model.events import data_of, run_of
from flows.model.standing import RunStanding, standings
from flows.model.types import Run
from flows.tails.kind_tail import KindTail
from flows.tails.stream_tail import Sieve, StreamTail, TailClient, WantedStream
from kernel.clock import Clock
from kernel.redis.clients import RedisClients
from kernel.service.service import Duty
from kernel.watch.feed import Feed
from kernel.watch.streams import StreamSource

VERSION: Final = 1
"""`v` of every frame."""
_GATHER_SECONDS: Final = 1.0
"""How long news of many runs may gather: to wait for ten thousand streams once costs Redis 11 ms."""
_BACKFILLS: Final = 8
"""How many clients read their past at the same time; more would only wait for connections."""


class StoreBus:
    """Everyone who tails flows in this process; `duties` run as long as it does."""

    def __init__(self, clients: RedisClients, clock: Clock, name: str = "flow-tails") -> None:
        """`name` is that of the connections."""
        self._clients = clients
        self._clock = clock
        self._turns = asyncio.Semaphore(_BACKFILLS)
        self._streams = Feed[Event](name, StreamSource(clients, name, entries.of_rows), clock)
        every = f"{name}-kinds"
        self._kinds = Feed[Event](every, StreamSource(clients, every, entries.of_rows), clock, _GATHER_SECONDS)

    @property
    def duties(self) -> tuple[Duty, ...]:
        """What reads."""
        return self._streams, self._kinds

    async def tail(
        self,
        run: Run,
        view: View.ValueType,
        client: TailClient,
        *,
        cursor: str = "",
        last: int | None = None,
        patterns: Sequence[str] = (),
    ) -> AsyncIterator[Frame]:
        """A stream of a run: behind the cursor, or the last so many, or all, and then live until the run has ended.

        Only kinds that fit a pattern (`kinds.fits`), if there are any; `last` counts those.
        """
        accepts = chosen(patterns)

        async def sieve(found: list[Event]) -> list[Event]:
            return [event for event in found if accepts(event.kind)]

        timeline = stream_of(run, VIEW_TIMELINE)
        wanted = WantedStream(stream_of(run, view), cursor, last, run.key, timeline)
        async for event in self._stream(wanted, sieve).read(client, accepts):
            yield frame(event)

    async def tail_runs(
        self,
        flow_name: str,
        client: TailClient,
        *,
        cursor: str = "",
        last: int | None = None,
        may_see: Callable[[RunStanding], bool] | None = None,
    ) -> AsyncIterator[Frame]:
        """The index of a flow's runs, as `tail`; those that `may_see` refuses, or that are gone, are left out.

        Without `may_see` it is the whole index. It does not end.
        """

        async def sieve(found: list[Event]) -> list[Event]:
            if may_see is None:
                return found
            runs = await standings(self._clients, [run_of(data_of(event)) for event in found])
            return [event for event, run in zip(found, runs, strict=True) if run is not None and may_see(run)]

        wanted = WantedStream(stream_of(Run("", flow_name), VIEW_RUNS), cursor, last)
        async for event in self._stream(wanted, sieve).read(client, chosen(())):
            yield frame(event)

    async def tail_kinds(
        self,
        client: TailClient,
        *,
        flow_name: str = "",
        patterns: Sequence[str] = (),
        may_see: Callable[[RunStanding], bool] = lambda _: True,
    ) -> AsyncIterator[Frame]:
        """The timelines of all runs, or of one flow's, from now on. It does not end.

        Events of one run come in its order; between runs there is none.
        """
        tail = KindTail(
            self._clients,
            self._kinds,
            self._clock,
            flow_name=flow_name,
            accepts=chosen(patterns),
            may_see=may_see,
        )
        async for event in tail.read(client):
            yield frame(event)

    def _stream(self, wanted: WantedStream, sieve: Sieve) -> StreamTail:
        return StreamTail(self._clients, self._streams, self._turns, wanted, sieve)


def frame(event: Event) -> Frame:
    """What a client is sent of a record."""
    return Frame(v=VERSION, stream=event.stream, event=event.kind, record=event)


def chosen(patterns: Sequence[str]) -> Callable[[str], bool]:
    """What says of a kind whether it fits one of the patterns, or whether there are none."""

    @lru_cache(256)
    def fits(kind: str) -> bool:
        return not patterns or any(kinds.fits(pattern, kind) for pattern in patterns)

    return fits
