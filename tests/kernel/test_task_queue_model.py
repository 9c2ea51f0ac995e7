"""Any interleaving of creators, sweeps, workers and strangers keeps the backlog within its limit and counts exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from queue_rig import QueueRig, new_task, queue_config

from kernel.errors import FetchboxError
from kernel.ledger.task_queue import NewTask, Swept
from kernel.redis import keys, scripts
from tests.examples import most

T = TypeVar("T")
LIMIT, CHAT_LIMIT = 5, 2
TASKS = st.sampled_from(["chat", "chat", "plan"])
LUCK = st.integers(0, 2)
"""What is rare happens at 0."""
PICK = st.integers(0, 999)
"""Chooses among what there is: what there is depends on the server, and a strategy must not."""


class Machine(RuleBasedStateMachine):
    """The model beside the real thing."""

    addr = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        config = queue_config(self.addr, LIMIT, chat=CHAT_LIMIT)
        self.box = self.run(self.stack.enter_async_context(QueueRig.on(config)))
        self.run(self.box.redis.flushall())
        self.run(self.box.clients.call(scripts.PROVISION, [keys.QUEUE, keys.cursors(keys.QUEUE)], [keys.GROUP_WORKERS]))
        self.noted: dict[str, NewTask] = {}
        """In the outbox."""
        self.recorded: set[str] = set()
        """Has a record; so the sweep may not drop it."""
        self.queue: dict[str, str] = {}
        """Entry -> the task under which it is counted, empty for a stranger's."""
        self.jobs: dict[str, str] = {}
        """Entry -> its job."""
        self.delivered: list[str] = []
        """Entries in work."""
        self.over: set[str] = set()
        """Entries that a bare worker acknowledged."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()

    def room(self, task: str) -> bool:
        own = sum(name == task for name in self.queue.values()) + sum(new.task == task for new in self.noted.values())
        return len(self.queue) + len(self.noted) < LIMIT and (task != "chat" or own < CHAT_LIMIT)

    def took(self, new: NewTask) -> None:
        """The newest entry is that of this job."""
        (entry, values) = self.run(self.box.entries())[-1]
        assert values["job_id"] == new.job_id
        self.queue[entry], self.jobs[entry] = new.task, new.job_id
        self.noted.pop(new.job_id, None)
        self.recorded.discard(new.job_id)

    # What creators do.

    @rule(task=TASKS)
    def create(self, task: str) -> None:
        """A whole creation; a refusal may tidy first, at most once a second, so the model does it before."""
        self.tidy()
        new = new_task(task)
        room = self.room(task)
        try:
            self.run(self.box.queue.create(new))
        except FetchboxError:
            assert not room
        else:
            assert room
            self.took(new)

    @rule(task=TASKS)
    def admit(self, task: str) -> None:
        """A creation that goes no further than its admission, for now."""
        new = new_task(task)
        admitted = self.run(self.box.admit(new, LIMIT, CHAT_LIMIT if task == "chat" else 0)) == 0
        assert admitted == self.room(task)
        if admitted:
            self.noted[new.job_id] = new

    @rule(pick=PICK)
    def admit_again(self, pick: int) -> None:
        new = self.one_of(list(self.noted.values()), pick)
        if new is not None:
            assert self.run(self.box.admit(new, LIMIT, CHAT_LIMIT if new.task == "chat" else 0)) == 0

    @rule(pick=PICK)
    def die_behind_the_record(self, pick: int) -> None:
        """What a creator of an earlier version left, which wrote record and entry one by one."""
        new = self.one_of([new for job_id, new in self.noted.items() if job_id not in self.recorded], pick)
        if new is not None:
            self.run(self.box.record_alone(new))
            self.recorded.add(new.job_id)

    @rule(pick=PICK, again=st.booleans())
    def make(self, pick: int, again: bool) -> None:
        new = self.one_of(list(self.noted.values()), pick)
        if new is not None:
            assert self.run(self.box.make(new)) == (new.job_id not in self.recorded)
            self.took(new)
            if again:
                assert self.run(self.box.make(new)) == 0

    @rule(luck=LUCK)
    def sweep(self, luck: int) -> None:
        if luck:
            return
        swept = self.run(self.box.queue.sweep(0))
        kept = {job_id for job_id in self.noted if job_id in self.recorded}
        assert swept == Swept(len(kept), len(self.noted) - len(kept))
        for entry, values in self.run(self.box.entries())[-len(kept) :] if kept else ():
            assert values["job_id"] in kept
            self.queue[entry], self.jobs[entry] = values["task"], values["job_id"]
        self.noted, self.recorded = {}, set()

    # What workers and strangers do.

    @rule(task=TASKS)
    def stranger_adds(self, task: str) -> None:
        entry = self.run(self.box.add_foreign(task=task))
        self.queue[entry], self.jobs[entry] = "", ""

    @rule(count=st.integers(1, 3))
    def deliver(self, count: int) -> None:
        waiting = [entry for entry in self.queue if entry not in self.delivered and entry not in self.over]
        if waiting:
            found = self.run(self.box.deliver(count))
            assert found == waiting[:count]
            self.delivered += found

    @rule(pick=PICK)
    def acknowledge(self, pick: int) -> None:
        entry = self.one_of(self.delivered, pick)
        if entry is not None:
            self.run(self.box.acknowledge(entry))
            self.delivered.remove(entry)
            del self.queue[entry]

    @rule(pick=PICK)
    def bare_worker_acknowledges(self, pick: int) -> None:
        entry = self.one_of(self.delivered, pick)
        if entry is not None:
            if self.jobs[entry]:
                self.run(self.box.end(self.jobs[entry]))
            self.run(self.box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, entry))
            self.delivered.remove(entry)
            self.over.add(entry)

    @rule()
    def look_for_leftovers(self) -> None:
        self.tidy()

    def tidy(self) -> None:
        assert len(self.run(self.box.leftovers.clear())) == len(self.over)
        for entry in self.over:
            del self.queue[entry]
        self.over = set()

    # What always holds.

    @invariant()
    def the_counts_are_exact(self) -> None:
        box = self.box
        counted = {name: list(self.queue.values()).count(name) for name in set(self.queue.values()) - {""}}
        assert self.run(box.counted()) == counted
        # Without an entry a count that is left over is worth nothing: the next admission drops it.
        assert self.run(box.open()) == counted
        assert self.run(box.outbox()) == len(self.noted)
        tasks = [new.task for new in self.noted.values()]
        assert self.run(box.noted()) == {name: tasks.count(name) for name in set(tasks)}

    @invariant()
    def ours_never_exceed_the_limit(self) -> None:
        ours = [name for name in self.queue.values() if name]
        assert len(ours) + len(self.noted) <= LIMIT
        assert ours.count("chat") + sum(new.task == "chat" for new in self.noted.values()) <= CHAT_LIMIT

    def one_of(self, things: list[T], pick: int) -> T | None:
        return things[pick % len(things)] if things else None


@pytest.mark.req("R004-post.06")
def test_any_interleaving_keeps_the_limit_and_the_counts(redis_server: str) -> None:
    Machine.addr = redis_server
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=most(30),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.generate],  # a failure is replayed by its seed: to shrink it takes minutes
        ),
    )
