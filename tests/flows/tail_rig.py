"""A Store Bus over a real Redis, runs to tail, and clients that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from journal_rig import append_of, order, redis_config, start, story, whole

from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event, View
from fetchbox.flow.v1.flow_pb2 import Frame
from flows.journal.redis_journal import RedisJournal
from flows.model.state import state_of
from flows.model.types import Run
from flows.tails.stream_tail import TailClient
from flows.tails.tails import StoreBus
from kernel.clock import SystemClock
from kernel.redis import keys
from kernel.redis.clients import RedisClients

FLOW = "example-flow"
PATIENCE = 30.0
"""Seconds; what takes longer does not come."""


class TailRig:
    """One Redis, what writes runs, and what tails them."""

    def __init__(self, clients: RedisClients, journal: RedisJournal, bus: StoreBus, steps: Stepping) -> None:
        self.steps = steps
        self.clients = clients
        self.redis: Any = clients.commands
        self.journal = journal
        self.bus = bus

    @classmethod
    @asynccontextmanager
    async def at(cls, address: str) -> AsyncIterator[TailRig]:
        config = redis_config(address)
        clients = await RedisClients.open(config.redis)
        stepping: Any = Stepping(clients)
        journal, bus = RedisJournal(clients, config), StoreBus(stepping, SystemClock(), "tails-under-test")
        for duty in bus.duties:
            await duty.start()
        try:
            yield cls(clients, journal, bus, stepping)
        finally:
            for duty in bus.duties:
                await duty.stop()
            await journal.close()
            await clients.close()

    @property
    def subscribers(self) -> int:
        """How many channels anybody waits for."""
        return self.bus._streams.subscribers + self.bus._kinds.subscribers

    async def open(self, flow_id: str = "run-1", flow_name: str = FLOW, tenant: str = "") -> Run:
        """A run that has an order and no event yet."""
        run = Run(flow_id, flow_name, tenant)
        await self.journal.open(run, "digest", {**order(run).fields(), "tenant": tenant.encode()})
        return run

    async def told(self, flow_id: str = "run-1", flow_name: str = FLOW, tenant: str = "") -> Run:
        """A run that is over."""
        run = await self.begin(flow_id, flow_name, tenant)
        await self.go_on(run)
        return run

    async def begin(self, flow_id: str = "run-1", flow_name: str = FLOW, tenant: str = "") -> Run:
        """A run that has its first event."""
        run = await self.open(flow_id, flow_name, tenant)
        await self.write(run, [[start(run)]], 0)
        return run

    async def go_on(self, run: Run) -> None:
        """Tells the rest of a run that has begun."""
        first, *rest = story(run)
        await self.write(run, [first[1:], *rest], 1)

    async def write(self, run: Run, chapters: Sequence[Sequence[Event]], revision: int) -> None:
        """Appends one chapter after the other."""
        for events in chapters:
            state = state_of(await self.records(run))
            revision = (await self.journal.append(append_of(run, events, state, revision))).revision

    async def records(self, run: Run, view: View.ValueType = VIEW_TIMELINE) -> list[Event]:
        return await whole(self.journal, run, view)

    async def remove(self, run: Run) -> None:
        """What retention does with a run."""
        await self.redis.delete(keys.flow(run.key), run.timeline)


class Reader:
    """A client that reads a tail in the background."""

    def __init__(self, tail: Callable[[TailClient], AsyncIterator[Frame]]) -> None:
        self.frames: list[Frame] = []
        self.begun = asyncio.Event()
        self.dropped = asyncio.Event()
        self._more = asyncio.Event()
        self._tail = tail
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async def begun() -> None:
            self.begun.set()

        async for frame in self._tail(TailClient(self.dropped.set, begun)):
            self.frames.append(frame)
            self._more.set()

    @property
    def events(self) -> list[Event]:
        return [frame.record for frame in self.frames]

    async def live(self) -> None:
        """Until the tail is live."""
        async with asyncio.timeout(PATIENCE):
            await self.begun.wait()

    async def until(self, enough: Callable[[], bool]) -> None:
        """Until the frames are enough."""
        async with asyncio.timeout(PATIENCE):
            while not enough():
                assert not self._task.done() or self._task.exception() is None, self._task.exception()
                await self._more.wait()
                self._more.clear()

    async def end(self) -> list[Event]:
        """Everything, once the tail has ended by itself."""
        async with asyncio.timeout(PATIENCE):
            await self._task
        return self.events

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@asynccontextmanager
async def reading(tail: Callable[[TailClient], AsyncIterator[Frame]]) -> AsyncGenerator[Reader, None]:
    reader = Reader(tail)
    try:
        yield reader
    finally:
        await reader.leave()


class Stepping:
    """The same clients, with something that happens just before one of their round trips."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        self.commands = _Commands(clients.commands, self._step)
        self._before: Callable[[], Awaitable[object]] | None = None
        self._left = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)

    def before(self, number: int, action: Callable[[], Awaitable[object]]) -> None:
        """Does it before the round trip of this number from now, the first being 0."""
        self._left, self._before = number, action

    @property
    def is_done(self) -> bool:
        """Whether it has happened."""
        return self._left < 0

    async def _step(self) -> None:
        self._left -= 1
        if self._left == -1 and self._before is not None:
            await self._before()


class _Commands:
    def __init__(self, commands: Any, step: Callable[[], Awaitable[None]]) -> None:
        self._commands = commands
        self._step = step

    async def execute_command(self, *args: Any) -> Any:
        await self._step()
        return await self._commands.execute_command(*args)

    def pipeline(self, **options: Any) -> Any:
        pipe = self._commands.pipeline(**options)
        execute = pipe.execute

        async def stepping() -> Any:
            await self._step()
            return await execute()

        pipe.execute = stepping
        return pipe
