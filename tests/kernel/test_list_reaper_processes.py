"""Reapers and workers as processes: two at once, and killed where it hurts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lane_rig import until
from reaper_rig import HIGH, LOW, Fleet, StepClock, job, settings

from kernel.queue.files.audit import ListAudit
from kernel.redis import keys
from kernel.redis.clients import RedisClients

PROGRAM = Path(__file__).with_name("reaper_process.py")


@pytest.fixture
async def fleet(redis_server: str) -> AsyncIterator[Fleet]:
    """Heartbeats live for a second."""
    config = settings(redis_server, ttl_ms=1000)
    clients = await RedisClients.open(config.redis)
    yield Fleet(config, clients)
    await clients.close()


@contextmanager
def process(fleet: Fleet, *args: str) -> Iterator[subprocess.Popen[str]]:
    """One that has written its first line; killed in the end."""
    argv = [sys.executable, str(PROGRAM), fleet.clients.address, str(fleet.ttl_ms), *args]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline()
            yield running
        finally:
            running.kill()
            running.stdout.read()


async def lengths(fleet: Fleet, *names: str) -> int:
    """How many entries all these lists have together."""
    return sum([await fleet.redis.llen(name) for name in names])


@pytest.mark.req("R002-reaper.08")
@pytest.mark.fault(11)
async def test_two_reapers_in_a_tight_loop_requeue_each_of_a_thousand_orphans_once(fleet: Fleet) -> None:
    with process(fleet, "reap") as one, process(fleet, "reap") as two:
        jobs = [job(str(number)) for number in range(1000)]
        for worker in range(20):
            await fleet.die(f"w{worker}", *jobs[worker::20])
        await until(lambda: lengths(fleet, LOW), lambda count: count >= 1000, patience=60)
        await until(lambda: fleet.redis.zcard(keys.FILE_WORKERS), lambda count: count == 0, patience=60)
        moved = 0
        for running in (one, two):
            running.kill()
            assert running.stdout is not None
            moved += sum(int(line) for line in running.stdout.read().splitlines())
    assert moved <= 1000, "what one has moved, the other has not"
    assert Counter(await fleet.items(LOW)) == Counter(jobs)
    assert set(await fleet.redis.hvals(keys.FILE_CRASHES)) == {b"1"}


@pytest.mark.long
@pytest.mark.req("R002-reaper.08")
@pytest.mark.fault(2)
async def test_reapers_killed_in_the_middle_of_their_passes_lose_and_double_nothing(fleet: Fleet) -> None:
    jobs = [job(str(number)) for number in range(20_000)]
    sources = [fleet.names.processing(f"w{worker}") for worker in range(10)]
    for worker in range(10):
        await fleet.die(f"w{worker}", *jobs[worker::10])
    done = 0
    while done < 20_000:
        with process(fleet, "reap") as running:
            await until(lambda: lengths(fleet, LOW), lambda count, done=done: count > done, patience=60)
            running.kill()
            running.wait()
        done = await lengths(fleet, LOW)
        assert done + await lengths(fleet, *sources) == 20_000
    assert Counter(await fleet.items(LOW)) == Counter(jobs)


@pytest.mark.long
@pytest.mark.req("R002-reaper.05", "R002-reaper.07", "R002-fetch.05")
@pytest.mark.fault(9, 15)
async def test_a_killed_worker_with_five_thousand_jobs_gives_them_back_within_a_lease_and_three_passes(
    fleet: Fleet,
) -> None:
    jobs = [job(str(number), HIGH if number % 2 else LOW) for number in range(5000)]
    await fleet.redis.lpush(HIGH, *jobs[1::2])
    await fleet.redis.lpush(LOW, *jobs[0::2])
    reaper = fleet.reaper(StepClock(step=0.025))
    with process(fleet, "hold", "w", "5000") as worker:
        for _ in range(20):
            assert await reaper.run() == 0
            await asyncio.sleep(0.05)
        worker.kill()
        worker.wait()
        assert await lengths(fleet, HIGH, LOW) == 0
    score = (await fleet.known())[b"w"]

    async def dead() -> bool:
        return await fleet.clients.now_ms() > score + fleet.ttl_ms + 5 and not await fleet.redis.exists(
            fleet.names.heartbeat("w")
        )

    await until(dead, bool)
    assert sum([await reaper.run() for _ in range(3)]) == 5000
    assert Counter(await fleet.items(HIGH) + await fleet.items(LOW)) == Counter(jobs)


@pytest.mark.fault(13, 14)
async def test_a_bare_worker_paused_between_its_two_commands_keeps_its_job_for_a_lease(fleet: Fleet) -> None:
    fleet.config.worker.heartbeat_ttl.FromSeconds(60)
    fleet.ttl_ms = 60_000
    reaper = fleet.reaper()
    audit = ListAudit(fleet.clients, fleet.config, StepClock(), reaper.visit)
    await fleet.redis.lpush(LOW, job("1"))
    with process(fleet, "bare", "shell-7") as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        while not await fleet.known():
            await audit.run()
        assert await reaper.run() == 0
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "beats\n"
        assert await reaper.run() == 0
    await fleet.redis.delete(fleet.names.heartbeat("shell-7"))
    assert await reaper.run() == 0
    await fleet.redis.zadd(keys.FILE_WORKERS, {"shell-7": await fleet.clients.now_ms() - 60_001.5})
    assert await reaper.run() == 1, "dead, it is treated like any other"
