"""Creators of task jobs that stop anywhere for any time, lose requests and replies, die, and are taken over.

Whatever happens between any two of their steps (sweeps, workers, the end of the record's time, a repetition under the
same key), a job that was answered for has been queued, none is queued twice, and a key answers for no job that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from ingest_svc.idempotency import BegunSubmit, Submits
from ingest_svc.once import Once
from ingest_svc.task_creation import TaskCreator
from ingest_svc.task_order import TaskOrder
from kernel.auth import Caller
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.errors import FetchboxError
from kernel.ledger import Ledger
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.log.topics import provision
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.pipe import Command, PipeLost
from tests.examples import most

Fate = Literal["well", "request lost", "reply lost"]
FATES: tuple[Fate, ...] = ("well", "well", "well", "request lost", "reply lost")
CREATORS = ("a", "b", "c", "alone")
"""`alone` has no idempotency key; the others share one."""
KEY = keys.task_idempotency("", "k")
LEASE = 0.001
ENDED = {"done", "error", "canceled"}

ACTIONS = st.one_of(
    st.tuples(st.sampled_from(CREATORS), st.sampled_from(FATES)),
    st.tuples(st.sampled_from(CREATORS), st.sampled_from(FATES)),
    st.tuples(st.just("die"), st.sampled_from(CREATORS)),
    st.tuples(st.sampled_from(["sweep", "work", "expire"]), st.just("well")),
)
STOOD_STILL = [("a", "well")] * 2 + [("sweep", "well"), ("a", "reply lost"), ("a", "well")]
"""Begun and admitted, dropped by a sweep, made, and the reply lost."""
DIED_BEHIND = [("a", "well")] * 2 + [("sweep", "well"), ("a", "reply lost"), ("die", "a"), ("b", "well"), ("b", "well")]
GHOST = [("a", "well")] * 2 + [("a", "reply lost"), ("work", "well"), ("expire", "well"), ("a", "well")]
OVERTAKEN = [("a", "well"), *[("b", "well")] * 3, ("work", "well"), ("expire", "well"), *[("a", "well")] * 3]
"""Another does it all while the first stands still behind its begin, and the record has expired when it goes on."""


class Clock(SystemClock):
    """Nobody renews a lease."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(3600 if seconds == LEASE / 3 else seconds)


class Turns:
    """Lets the calls of one creator to Redis go on one by one."""

    def __init__(self) -> None:
        self._go: asyncio.Queue[Fate] = asyncio.Queue()
        self.waiting = asyncio.Event()

    async def call(self, work: Callable[[], Awaitable[Any]], lost: Exception) -> Any:
        """One call, when its turn has come."""
        self.waiting.set()
        fate = await self._go.get()
        if fate == "request lost":
            raise lost
        found = await work()
        if fate == "reply lost":
            raise lost
        return found

    def go(self, fate: Fate) -> None:
        self.waiting.clear()
        self._go.put_nowait(fate)


class SteppedSubmits(Submits):
    """Waits before each claim of the key. The kernel repeats what is lost there by itself."""

    turns: Turns

    async def begin(self, *args: Any, **more: Any) -> BegunSubmit:
        begin = super().begin
        return await self.turns.call(lambda: begin(*args, **more), FetchboxError(0, "lost"))


class SteppedLink:
    """Waits before each pipeline."""

    def __init__(self, link: Any, turns: Turns) -> None:
        self._link = link
        self._turns = turns

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        return await self._turns.call(lambda: self._link.run(commands), PipeLost("lost"))

    def close(self) -> None:
        self._link.close()


class World:
    """A key, its creators, a creator without one, a worker and the sweep."""

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self.clients = clients
        self.config = config
        self.redis = clients.commands
        self.sweeper = TaskQueue(clients, config)
        self.running: dict[str, tuple[Turns, TaskQueue, asyncio.Task[Any]]] = {}
        self.answered: set[str] = set()
        self.seen: dict[str, str] = {}
        """Each entry that there ever was -> its job."""
        self.made = 0

    async def act(self, what: str, how: Any) -> None:
        """One action; those that are not possible now do nothing."""
        if what == "die":
            await self.die(how)
        elif what == "sweep":
            await self.sweeper.sweep(-1000)
        elif what == "work":
            await self.work()
        elif what == "expire":
            await self.expire()
        else:
            await self.step(what, how)
        await self.look()

    async def look(self) -> None:
        for entry, fields in await self.redis.xrange(keys.QUEUE):
            self.seen[entry.decode()] = fields[b"job_id"].decode()

    async def step(self, name: str, fate: Fate) -> None:
        """The next call of a creator, who begins anew after the last one."""
        if name not in self.running:
            await self._begin(name)
        turns, queue, task = self.running[name]
        await self._until_waiting(turns, task)
        if not task.done():
            turns.go(fate)
            await self._until_waiting(turns, task)
        if task.done():
            del self.running[name]
            await queue.stop()
            if not isinstance(task.exception(), FetchboxError):
                self.answered.add(task.result().job_id)

    async def _begin(self, name: str) -> None:
        turns = Turns()
        queue = TaskQueue(self.clients, self.config)
        admission: Any = queue._admission
        admission._link = SteppedLink(admission._link, turns)
        await queue.start()
        submits = SteppedSubmits(self.clients)
        submits.turns = turns
        creator = TaskCreator(Once(submits, LEASE, Clock()), queue, Ledger(self.clients, self.config), lambda _: None)
        self.made += 1
        new = NewTask(f"j{self.made}", "chat", b"{}", ttl_s=0)
        order = TaskOrder(new=new, idempotency_key="" if name == "alone" else "k", digest="d", window_ms=60_000)
        self.running[name] = (turns, queue, asyncio.create_task(creator.create(order, Caller("operator"))))

    async def _until_waiting(self, turns: Turns, task: asyncio.Task[Any]) -> None:
        waiting = asyncio.create_task(turns.waiting.wait())
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def die(self, name: str) -> None:
        """A creator's process is gone, wherever it was."""
        if name in self.running:
            _, queue, task = self.running.pop(name)
            task.cancel()
            await asyncio.wait({task})
            await queue.stop()

    async def work(self) -> None:
        """A worker ends the job of the oldest entry."""
        found = await self.redis.xrange(keys.QUEUE, count=1)
        for entry, fields in found:
            await self.redis.hset(keys.job(fields[b"job_id"].decode()), "status", "done")
            await self.redis.xdel(keys.QUEUE, entry)

    async def expire(self) -> None:
        """The time of every ended record is over; as a TTL is never below a millisecond, some time has passed."""
        before = await self.clients.now_ms()
        while await self.clients.now_ms() <= before + 1:
            pass
        for name in await self.redis.keys("job:*"):
            if not name.endswith(b":events") and await self.redis.hget(name, "status") == b"done":
                await self.redis.delete(name, name + b":events")

    async def check(self) -> None:
        for name in CREATORS:
            await self.die(name)
        await self.act("sweep", "")
        queued = list(self.seen.values())
        assert len(queued) == len(set(queued)), "none is queued twice"
        assert self.answered <= set(queued), "who was answered for has been queued"
        kept = await self.redis.hmget(KEY, "job_id", "answer")
        assert kept[1] is None or kept[0].decode() in queued, "a key answers only for what was queued"
        assert await self.redis.zcard(keys.outbox(keys.QUEUE)) == 0
        assert not await self.redis.exists(keys.noted_tasks())
        entries = {fields[b"job_id"] for _, fields in await self.redis.xrange(keys.QUEUE)}
        for name in await self.redis.keys("job:*"):
            if not name.endswith(b":events") and await self.redis.hget(name, "status") == b"queued":
                assert name.removeprefix(b"job:") in entries, "what waits is on the queue"


async def scenario(config: Config, actions: Sequence[tuple[str, Any]]) -> None:
    clients = await RedisClients.open(config.redis)
    try:
        await clients.commands.flushall()
        await provision(clients, config)
        world = World(clients, config)
        await world.sweeper.start()
        for what, how in actions:
            await world.act(what, how)
        await world.check()
        await world.sweeper.stop()
    finally:
        await clients.close()


@pytest.fixture
def config(redis_server: str) -> Config:
    made = defaults()
    made.redis.addr = redis_server
    made.redis.max_retries = 2
    return made


def test_creators_that_stop_anywhere_lose_and_double_nothing(config: Config) -> None:
    @settings(
        max_examples=most(250),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(st.lists(ACTIONS, min_size=4, max_size=24))
    @example(STOOD_STILL)
    @example(DIED_BEHIND)
    @example(GHOST)
    @example(OVERTAKEN)
    def run(actions: list[tuple[str, Any]]) -> None:
        asyncio.run(scenario(config, actions))

    run()
