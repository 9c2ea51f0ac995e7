"""Whatever workers, heartbeats and registry say: jobs of the living stay, those of the dead go back, none is lost."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from reaper_rig import HIGH, LOW, Fleet, job
from reaper_rig import settings as rig_settings

from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.examples import most

QUEUES = (HIGH, LOW)
NOW, LONG_AGO, AHEAD = "now", "long ago", "ahead"


@dataclass(frozen=True)
class Job:
    """A job on a processing list."""

    payload: bytes
    queue: str


@dataclass(frozen=True)
class Worker:
    """A worker in some state."""

    beats: bool
    registered: str
    """When it was last known to be alive; empty where the registry does not know it."""
    itself: bool
    """Whether it registered itself."""
    held: list[Job] = field(default_factory=list)
    alone: list[Job] = field(default_factory=list)

    @property
    def dead(self) -> bool:
        return not self.beats and self.registered == LONG_AGO


# Few names, so that byte-identical jobs are common.
known = st.builds(lambda name, queue: Job(job(name, queue), queue), st.sampled_from("abc"), st.sampled_from(QUEUES))
by_priority = st.sampled_from([("high", HIGH), ("low", LOW), ("none", LOW)]).map(
    lambda found: Job(job("p", "elsewhere", priority=found[0]), found[1])
)
garbage = st.binary(max_size=12).map(lambda data: Job(b"\x00" + data, LOW))
jobs = st.lists(known | by_priority | garbage, max_size=6)
workers = st.builds(
    Worker,
    beats=st.booleans(),
    registered=st.sampled_from([NOW, LONG_AGO, AHEAD, ""]),
    itself=st.booleans(),
    held=jobs,
    alone=jobs,
)


@given(
    fleet=st.lists(workers, max_size=5), limit=st.integers(1, 4), crashes=st.integers(0, 4), reapers=st.integers(1, 3)
)
@settings(max_examples=most(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_the_dead_lose_their_jobs_and_no_job_is_lost(
    redis_server: str, fleet: list[Worker], limit: int, crashes: int, reapers: int
) -> None:
    asyncio.run(_check(redis_server, fleet, limit, crashes, reapers))


async def _check(addr: str, workers: list[Worker], limit: int, crashes: int, reapers: int) -> None:
    config = rig_settings(addr)
    config.worker.crash_limit = limit
    clients = await RedisClients.open(config.redis)
    try:
        await clients.commands.flushall()
        fleet = Fleet(config, clients)
        for number, worker in enumerate(workers):
            await _set(fleet, f"w{number}", worker)
        every = [one.payload for worker in workers for one in worker.held + worker.alone]
        for payload in every:
            await clients.commands.hset(keys.FILE_CRASHES, _digest(payload), crashes)
        moved = await asyncio.gather(*(fleet.reaper().run() for _ in range(reapers)))
        dead = [one for worker in workers if worker.dead for one in worker.held + worker.alone]
        assert sum(moved) == len(dead)
        await _expect(fleet, workers, dead, every)
    finally:
        await clients.close()


async def _set(fleet: Fleet, name: str, worker: Worker) -> None:
    now = await fleet.clients.now_ms()
    for one in worker.held:
        await fleet.redis.lpush(fleet.names.processing(name), one.payload)
    for one in worker.alone:
        await fleet.redis.lpush(fleet.names.processing(keys.solo(name)), one.payload)
    if worker.beats:
        await fleet.redis.set(fleet.names.heartbeat(name), b"{}", px=60_000)
    when = {NOW: now, LONG_AGO: now - 90_000, AHEAD: now + 90_000}.get(worker.registered)
    if when is not None:
        await fleet.redis.zadd(keys.FILE_WORKERS, {name: when + (0 if worker.itself else 0.5)})


async def _expect(fleet: Fleet, workers: list[Worker], dead: list[Job], every: list[bytes]) -> None:
    left: list[bytes] = []
    for number, worker in enumerate(workers):
        for name, held in ((f"w{number}", worker.held), (keys.solo(f"w{number}"), worker.alone)):
            stays = [] if worker.dead else [one.payload for one in held]
            found = await fleet.held(name)
            assert found == stays[::-1]
            left += found
    places = {name: await fleet.items(name) for name in (*QUEUES, keys.FILE_SUSPECTS, fleet.names.dead_letters)}
    assert Counter(left + [payload for items in places.values() for payload in items]) == Counter(every)
    for queue in QUEUES:
        assert Counter(places[queue]) <= Counter(one.payload for one in dead if one.queue == queue)
    alone = Counter(one.payload for worker in workers if worker.dead for one in worker.alone)
    assert Counter(places[fleet.names.dead_letters]) <= alone, "only what ran alone is given up"


def _digest(payload: bytes) -> str:
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()
