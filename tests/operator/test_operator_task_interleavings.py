"""Replays of a task job in any interleaving: with each other, with its runs, with its expiry, with their own death."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from task_hand import TaskHand

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.config.loading import defaults
from kernel.ledger import Ledger
from kernel.log.topics import provision
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from operator_svc.letter_streams import DeadLetters
from operator_svc.task_replays import TaskReplays
from tests.examples import most

JOB = "j"
OPERATORS = ("a", "b", "c")
ENDED = {"done", "error"}

ACTIONS = st.one_of(
    st.tuples(st.sampled_from(OPERATORS), st.integers(0, 2)),
    st.tuples(st.just("whole"), st.integers(0, 2)),
    st.tuples(st.just("work"), st.sampled_from(["", "HANDLER_HTTP_400"])),
    st.tuples(st.sampled_from(["die", "expire"]), st.sampled_from(OPERATORS)),
)
STALE = [("expire", "a"), ("a", 0), ("a", 0), ("whole", 0), ("work", "HANDLER_HTTP_400"), ("expire", "a"), ("a", 0)]
"""An operator whose process stands still from before the record's next life to after it."""


class Turns:
    """Lets the steps of one operator go on one by one."""

    def __init__(self) -> None:
        self._go = asyncio.Event()
        self.waiting = asyncio.Event()

    async def turn(self) -> None:
        """Waits for its turn."""
        self.waiting.set()
        await self._go.wait()
        self._go.clear()

    def go(self) -> None:
        """Gives the turn."""
        self.waiting.clear()
        self._go.set()


class SteppedLedger(Ledger):
    """Waits before each step."""

    turn: Callable[[], Coroutine[Any, Any, None]]

    async def replay_task(self, task: QueuedTask, max_replays: int, *, remake: bool = False) -> tuple[str, int, int]:
        await self.turn()
        return await super().replay_task(task, max_replays, remake=remake)


class SteppedLetters(DeadLetters):
    """Waits before each step."""

    turn: Callable[[], Coroutine[Any, Any, None]]

    async def requeue(self, *args: Any, **more: Any) -> bool:
        await self.turn()
        return await super().requeue(*args, **more)

    async def was_requeued(self, once: str) -> bool:
        await self.turn()
        return await super().was_requeued(once)


class World:
    """One job, three operators who replay it, and a worker."""

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self.clients = clients
        self.config = config
        self.hand = TaskHand(clients, config)
        self.plain = TaskReplays(DeadLetters(clients, config), Ledger(clients, config))
        self.running: dict[str, tuple[Turns, asyncio.Task[Any]]] = {}
        self.letters = [QueuedTask(job_id=JOB, task="chat", payload=b"{}", ttl_s=60)]
        self.life = 0
        self.seen: dict[str, tuple[int, str]] = {}

    async def failed(self) -> None:
        """The job has failed once."""
        names = {"job_id": JOB, "task": "chat", "payload": "{}", "status": "error", "created_ts": 1, "updated_ts": 1}
        await self.hand.redis.hset(keys.job(JOB), mapping={**names, "ttl_s": 60, "result": "", "error": "{}"})

    async def act(self, what: str, how: Any) -> None:
        """One action; those that are not possible now do nothing."""
        if what == "work":
            await self.work(how)
        elif what == "die":
            await self.die(how)
        elif what == "expire":
            if (await self.hand.record(JOB)).get("status") in ENDED:
                await self.expire()
        elif what == "whole":
            await self.plain.replay(self.letter(how), 0, "")
        else:
            await self.step(what, self.letter(how))
        for entry, fields in await self.hand.redis.xrange(keys.QUEUE):
            self.seen.setdefault(entry.decode(), (self.life, fields[b"replay"].decode()))

    def letter(self, number: int) -> QueuedTask:
        """One of the letters that there are."""
        return self.letters[min(number, len(self.letters) - 1)]

    async def step(self, name: str, letter: QueuedTask) -> None:
        """The next step of an operator, who begins anew with this letter after the last one."""
        if name not in self.running:
            turns = Turns()
            ledger, letters = SteppedLedger(self.clients, self.config), SteppedLetters(self.clients, self.config)
            ledger.turn = letters.turn = turns.turn
            task = asyncio.create_task(TaskReplays(letters, ledger).replay(letter, 0, ""))
            self.running[name] = (turns, task)
        turns, task = self.running[name]
        waiting = asyncio.create_task(turns.waiting.wait())
        await waiting
        turns.go()
        waiting = asyncio.create_task(turns.waiting.wait())
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
            del self.running[name]

    async def die(self, name: str) -> None:
        """An operator's process is gone, wherever it was."""
        if name in self.running:
            _, task = self.running.pop(name)
            task.cancel()
            await asyncio.wait({task})

    async def expire(self) -> None:
        """The record is gone; time has passed since its last entry was added, as a TTL is never below a millisecond."""
        before = await self.clients.now_ms()
        while await self.clients.now_ms() == before:
            pass
        await self.hand.expire(JOB)
        self.life += 1

    async def work(self, code: str) -> None:
        """A worker takes the next entry, if there is one, and ends its job."""
        if not await self.hand.redis.xlen(keys.QUEUE):
            return
        entry, task, token = await self.hand.start()
        if token <= 0:
            await self.hand.acknowledge(entry, "chat")
        elif await self.hand.settle(entry, task, token, code) == "n" and code:
            self.letters.append(QueuedTask(job_id=JOB, task="chat", payload=b"{}", ttl_s=60, replay=task.replay))

    async def check(self) -> None:
        """Whatever has happened, asking once more for every letter leaves a job that runs or has ended."""
        for name in OPERATORS:
            await self.die(name)
        for letter in self.letters:
            await self.plain.replay(letter, 0, "")
        await self.act("die", "a")
        assert max(Counter(self.seen.values()).values(), default=0) <= 1, "no number twice in one life of the record"
        record, entries = await self.hand.record(JOB), await self.hand.entries()
        if record.get("status") == "queued":
            assert record["replays"] in [entry["replay"] for entry in entries], "a queued job has its entry"
        assert await self.hand.open() == ({"chat": len(entries)} if entries else {})
        while entries:
            await self.work("")
            entries = await self.hand.entries()
        assert (await self.hand.record(JOB)).get("status") in {*ENDED, None}


async def scenario(config: Config, actions: list[tuple[str, Any]]) -> None:
    clients = await RedisClients.open(config.redis)
    try:
        await clients.commands.flushall()
        await provision(clients, config)
        world = World(clients, config)
        await world.failed()
        for what, how in actions:
            await world.act(what, how)
        await world.check()
    finally:
        await clients.close()


def test_no_interleaving_runs_a_number_twice_or_strands_the_job(redis_server: str) -> None:
    config = defaults()
    config.redis.addr = redis_server

    @settings(
        max_examples=most(120),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @example(STALE)
    @example([*STALE, ("a", 0)])
    @given(st.lists(ACTIONS, min_size=4, max_size=30))
    def holds(actions: list[tuple[str, Any]]) -> None:
        asyncio.run(scenario(config, actions))

    holds()
