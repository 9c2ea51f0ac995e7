"""Any interleaving of what producers, workers, reapers and fate do keeps every file job in exactly one place.

The reference is a count: of each payload, how many were pushed, and which of them have ended how. Payloads repeat, so
that a copy that is taken for another shows.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import hypothesis.strategies as st
from cutting import Cutting
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from list_rig import NEVER, PASSING, ListRig, payload
from list_rig import settings as list_settings

from fetchbox.config.v1.config_pb2 import Redis
from kernel.queue.files.lane import ListLane
from kernel.queue.work.file_job import JobError, read
from kernel.queue.work.types import Claim, Failure, Success
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from tests.examples import most

T = TypeVar("T")
WORKERS = ("w0", "w1", "w2")
LUCK = st.integers(0, 2)
"""What is rare happens at 0."""
PICK = st.integers(0, 999)
"""Chooses among what there is: what there is depends on the server, and a strategy must not."""
DEFERRAL = Failure("STORAGE_UNAVAILABLE", "away", counts=False)
JUNK = b"\xffno job"


def name_of(job: bytes) -> bytes:
    """What stays of a job whatever is rewritten in it."""
    try:
        return read(job).id.encode()
    except JobError:
        return job


class Machine(RuleBasedStateMachine):
    """The reference beside the real thing."""

    addr = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pushed: Counter[bytes] = Counter()
        self.done: Counter[bytes] = Counter()
        self.dead: Counter[bytes] = Counter()
        self.held: list[tuple[ListLane, Claim]] = []
        self.lanes: dict[str, ListLane] = {}
        self.names = 0
        self.deaths = 0
        """Workers that died, or were taken for dead."""
        config = list_settings(self.addr, move=0.02)
        self.cut = Cutting(self.addr)
        self.server = self.run(asyncio.start_server(self.cut.accepted, "127.0.0.1", 0))
        through = Redis()
        through.CopyFrom(config.redis)
        through.addr = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        self.box = ListRig(config, self.run(RedisClients.open(config.redis)))
        self.through = self.run(RedisClients.open(through))
        self.run(self.box.redis.flushall())
        for worker in WORKERS:
            self.lanes[worker] = self.run(self.box.lane(worker, clients=self.through))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    # What may happen.

    @rule(
        job=st.sampled_from("abcd"),
        queue=st.integers(0, 1),
        count=st.integers(1, 3),
        ours=st.booleans(),
        worker=st.sampled_from(WORKERS),
    )
    def push(self, job: str, queue: int, count: int, ours: bool, worker: str) -> None:
        """Producers push, and somebody takes some of it."""
        self._push(job, queue, count, ours)
        self.fetch(worker, count, 0.03)

    def _push(self, job: str, queue: int, count: int, ours: bool = False) -> None:
        name = self.box.names.queues[queue]
        made = payload(job, **({"origin_queue": name} if ours else {}))
        self.run(self.box.push(name, *[made] * count))
        self.pushed[name_of(made)] += count

    @rule(queue=st.integers(0, 1), luck=LUCK)
    def push_junk(self, queue: int, luck: int) -> None:
        if luck == 0:
            self.run(self.box.push(self.box.names.queues[queue], JUNK))
            self.pushed[JUNK] += 1
            self.dead[JUNK] += 1

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 4), wait=st.sampled_from([0.0, 0.03]))
    def fetch(self, worker: str, limit: int, wait: float) -> None:
        lane = self.lanes[worker]
        self.held += [(lane, claim) for claim in self.run(lane.claim(limit, wait))]

    def _any(self, pick: int) -> tuple[ListLane, Claim] | None:
        """One of the claims there are, no longer ours to use; there mostly is one, so that things happen."""
        if not self.held:
            self._push("abcd"[pick % 4], pick % 2, 2)
            self.fetch(WORKERS[pick % 3], 2, 0.03)
        return self.held.pop(pick % len(self.held)) if self.held else None

    @rule(
        pick=PICK,
        outcome=st.sampled_from([Success(), NEVER, PASSING, DEFERRAL]),
        lose=LUCK,
        lapsed=LUCK,
        heir=st.sampled_from(WORKERS),
    )
    def settle(self, pick: int, outcome: Success | Failure, lose: int, lapsed: int, heir: str) -> None:
        """Also by one who has lost everything to another, and does not know it."""
        found = self._any(pick)
        if found is None:
            return
        lane, claim = found
        if lapsed == 0:
            self._lapse(lane, heir)
        if lose == 0:
            self.cut.lose(scripts.FILE_SETTLE.sha)
        told = self.run(self.box.settle(lane, [claim], outcome))[0]
        self.cut.left = 0
        self._told(claim, outcome, told)

    def _told(self, claim: Claim, outcome: Success | Failure, told: str) -> None:
        if told == "completed":
            assert isinstance(outcome, Success)
            self.done[name_of(claim.payload)] += 1
        elif told == "failed":
            assert outcome is NEVER or (outcome is PASSING and claim.attempt == 3)
            self.dead[name_of(claim.payload)] += 1
        elif told == "retrying":
            assert outcome is PASSING
        elif told == "deferred":
            assert outcome is DEFERRAL
        else:
            assert told == "fenced"

    @rule(worker=st.sampled_from(WORKERS), luck=LUCK)
    def promote(self, worker: str, luck: int) -> None:
        if luck == 0:
            self.run(self._all_are_due())
        self.run(self.lanes[worker]._promoter.promote())

    async def _all_are_due(self) -> None:
        members = await self.box.redis.zrange(keys.FILE_DELAYED, 0, -1)
        if members:
            await self.box.redis.zadd(keys.FILE_DELAYED, dict.fromkeys(members, 0))

    @rule(pick=PICK, lose=LUCK)
    def give_back(self, pick: int, lose: int) -> None:
        found = self._any(pick)
        if found is None:
            return
        lane, claim = found
        if lose == 0:
            self.cut.lose(scripts.FILE_SETTLE.sha)
        self.run(lane.give_back([claim]))
        self.cut.left = 0

    @rule(worker=st.sampled_from(WORKERS))
    def give_back_what_was_brought(self, worker: str) -> None:
        self.run(self.lanes[worker].return_surplus())

    @rule(worker=st.sampled_from(WORKERS), luck=LUCK)
    def crash(self, worker: str, luck: int) -> None:
        if luck == 0:
            self._die(worker)
            self.names += 1
            fresh = self.box.lane(f"{worker}-{self.names}", clients=self.through)
            self.lanes[worker] = self.run(fresh)

    @rule(worker=st.sampled_from(WORKERS), heir=st.sampled_from(WORKERS), luck=LUCK)
    def lapse(self, worker: str, heir: str, luck: int) -> None:
        if luck == 0:
            self._lapse(self.lanes[worker], heir)

    def _lapse(self, lane: ListLane, heir: str) -> None:
        """Its heartbeat is over and it does not know: only the lists stand between it and its heir."""
        self.deaths += 1
        self.run(self.box.lapse(lane.worker_id))
        self.run(self.box.reaper.run())
        self.fetch(heir, 4, 0.0)

    @rule(worker=st.sampled_from(WORKERS), luck=LUCK)
    def lapse_and_learn(self, worker: str, luck: int) -> None:
        """It learns that it has lapsed, and begins anew."""
        if luck:
            return
        lane = self.lanes[worker]
        self.run(self._relive(lane))
        late = [claim for owner, claim in self.held if owner is lane]
        self.held = [(owner, claim) for owner, claim in self.held if owner is not lane]
        assert self.run(self.box.settle(lane, late, Success())) == ["fenced"] * len(late)

    async def _relive(self, lane: ListLane) -> None:
        name = self.box.names.heartbeat(lane.worker_id)
        await self.box.redis.delete(name)
        lane._lease_changed(False)
        assert lane._rejoining is not None
        await lane._rejoining
        await self.box.clients.call(scripts.FILE_BEAT, [name, keys.FILE_WORKERS], [lane.worker_id, 30_000, 1, "{}"])
        lane._lease_changed(True)

    @rule()
    def reap(self) -> None:
        self.run(self.box.reaper.run())

    @rule(worker=st.sampled_from(WORKERS), again=st.booleans())
    def reconcile(self, worker: str, again: bool) -> None:
        """What a worker runs stays with it; what nobody knows of goes back at the second look."""
        lane = self.lanes[worker]
        running = [claim for owner, claim in self.held if owner is lane]
        for _ in range(1 + again):
            strays = self.run(lane._strays.held()) - lane._known()
            lane._strays._doubted_at = 0.0  # a second has passed
            assert self.run(lane.reconcile(running)) <= strays.total(), "what it runs stays with it"
        self.run(lane._settling.flush())

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 4), found=st.booleans())
    def lose_what_was_taken(self, worker: str, limit: int, found: bool) -> None:
        """The reply to a take does not come; the look for strays is the only one to find it."""
        lane = self.lanes[worker]
        self._push("abcd"[limit - 1], limit % 2, 2)
        self.cut.lose(scripts.FILE_TAKE.sha)
        self.fetch(worker, limit, 0.0)
        self.cut.left = 0
        if found:
            self.reconcile(worker, again=True)
            assert self.run(self._are_all_known(lane))

    async def _are_all_known(self, lane: ListLane) -> bool:
        """What is on the lists of a worker is what it knows of; its blocked moves go on meanwhile."""
        for _ in range(200):
            if not await lane._strays.held() - lane._known():
                return True
            await asyncio.sleep(0.02)
        return False

    # What always holds.

    @invariant()
    def every_job_is_in_exactly_one_place(self) -> None:
        places = self.run(self._places())
        everywhere: Counter[bytes] = Counter()
        for jobs in places.values():
            everywhere += jobs
        assert everywhere == self.pushed

    @invariant()
    def ends_are_as_they_were_told(self) -> None:
        places = self.run(self._places())
        assert places.get(self.box.names.completed, Counter()) == self.done
        letters = places.get(self.box.names.dead_letters, Counter())
        looped = letters - self.dead
        assert not self.dead - letters - Counter({JUNK: self.dead[JUNK]})
        assert not looped or self.deaths >= 3, "dead letters that no outcome has made are crash loops"

    async def _places(self) -> dict[str, Counter[bytes]]:
        """Every list, by the names of the jobs; read in one step, as settlements go on by themselves."""
        named: dict[str, Counter[bytes]] = {}
        for name, jobs in (await self._census()).items():
            found = named[name] = Counter()
            for job in jobs:
                found[name_of(job)] += 1
        return named

    async def _census(self) -> dict[str, list[bytes]]:
        names = [key.decode() for key in await self.box.redis.keys("jobqueue:*")]
        async with self.box.redis.pipeline(transaction=True) as pipeline:
            for name in names:
                pipeline.type(name)
            kinds = await pipeline.execute()
        lists = [name for name, kind in zip(names, kinds, strict=True) if kind == b"list"]
        fixed = [*self.box.names.queues, self.box.names.completed, self.box.names.dead_letters, keys.FILE_SUSPECTS]
        lanes = [lane.worker_id for lane in self.lanes.values()]
        held = [self.box.names.processing(one) for worker in lanes for one in (worker, keys.solo(worker))]
        asked = list(dict.fromkeys([*lists, *fixed, *held]))
        async with self.box.redis.pipeline(transaction=True) as pipeline:
            for name in asked:
                pipeline.lrange(name, 0, -1)
            pipeline.zrange(keys.FILE_DELAYED, 0, -1)
            *found, delayed = await pipeline.execute()
        parked = [member.split(b"|", 2)[2] for member in delayed]
        return {**dict(zip(asked, found, strict=True)), keys.FILE_DELAYED: parked}

    # The end: everybody dies, and one worker finishes everything.

    def teardown(self) -> None:
        try:
            for worker in WORKERS:
                self._die(worker)
            self.run(self._finish())
            self.every_job_is_in_exactly_one_place()
            places = self.run(self._places())
            ended = {self.box.names.completed, self.box.names.dead_letters}
            assert {name for name, jobs in places.items() if jobs} <= ended, "all have ended"
            self.run(self._nothing_is_left())
        finally:
            self.run(self._close())
            self.loop.close()

    async def _finish(self) -> None:
        lane = await self.box.lane("last")
        while await self._open():
            await self.box.reaper.run()
            await self._all_are_due()
            claims = await lane.claim(64, 0.01)
            await self.box.settle(lane, claims, Success())
        await self.box.reaper.run()  # forgets the dead
        await lane.stop()
        self.box.lanes.remove(lane)

    async def _open(self) -> int:
        found = await self._census()
        return sum(len(jobs) for jobs in found.values()) - sum(
            len(found[name]) for name in (self.box.names.completed, self.box.names.dead_letters)
        )

    async def _nothing_is_left(self) -> None:
        ends = [self.box.names.completed, self.box.names.dead_letters]
        left = {key.decode() for key in await self.box.redis.keys("jobqueue:*")}
        left = {key for key in left if not key.startswith("jobqueue:batch:")}  # they expire
        assert left <= {*ends, keys.FILE_CRASHES}, "side keys"
        for letter in await self.box.list(ends[1]):
            assert letter == JUNK or "failure" in json.loads(letter) or self.deaths >= 3

    async def _close(self) -> None:
        for lane in list(self.box.lanes):
            await lane.stop()
        self.server.close()
        await self.cut.close()
        await self.through.close()
        await self.box.clients.close()

    def _die(self, worker: str) -> None:
        self.deaths += 1
        lane = self.lanes[worker]
        self.held = [(owner, claim) for owner, claim in self.held if owner is not lane]
        self.run(self.box.die(lane))


def test_any_interleaving_leaves_every_job_in_exactly_one_place(redis_server: str) -> None:
    """Also queue_faults rows 5, 11 and 20 in all their variations."""
    Machine.addr = redis_server
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=most(20),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.generate],  # a failure is replayed by its seed: to shrink it takes minutes
        ),
    )
