"""Killed workers of file jobs cost time, never a job; a job that kills them ends as a dead letter, and alone."""

from __future__ import annotations

import asyncio
import contextlib
import random
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from child_worker import child, line
from lane_rig import until
from list_rig import ListRig, payload, rig, settings

from kernel.queue.work.types import Success
from kernel.redis import keys

TTL = 1.0


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server, ttl=TTL)) as opened:
        yield opened


def worker(box: ListRig, name: str, mode: str, *more: str) -> AbstractAsyncContextManager[Process]:
    """A worker process, killed in the end."""
    return child("list_process.py", box.config.redis.addr, name, TTL, mode, *more)


async def _reap_until(box: ListRig, done: asyncio.Event) -> None:
    while not done.is_set():
        await box.reaper.run()
        await asyncio.sleep(0.05)


@pytest.mark.req("R002-fetch.05")
@pytest.mark.fault(14, 15)
async def test_what_a_killed_process_held_is_done_by_another(box: ListRig) -> None:
    jobs = await box.fill(box.high, 8)
    async with worker(box, "victim", "hold") as process:
        for _ in jobs:
            assert (await line(process)).startswith("claimed")
        heir = await box.lane("heir")
        assert await box.reaper.run() == 0, "its heartbeat is there"
        process.kill()
    done = asyncio.Event()
    reaping = asyncio.create_task(_reap_until(box, done))
    claims = await box.claim(heir, 8, patience=60)
    done.set()
    await reaping
    assert sorted(claim.payload for claim in claims) == sorted(jobs)
    assert {claim.attempt for claim in claims} == {0}, "a crash is no attempt"
    assert await box.settle(heir, claims, Success()) == ["completed"] * 8
    assert await box.redis.hlen(keys.FILE_CRASHES) == 0


@pytest.mark.req("R002-fetch.05")
async def test_workers_killed_at_any_moment_lose_nothing(box: ListRig) -> None:
    """Three times two workers, killed in the middle of their work; the last one finishes."""
    jobs: Counter[bytes] = Counter()
    done = asyncio.Event()
    reaping = asyncio.create_task(_reap_until(box, done))
    rng = random.Random(7)
    for turn in range(3):
        async with worker(box, f"a{turn}", "settle") as one, worker(box, f"b{turn}", "settle") as two:
            jobs.update(await box.fill(box.high, 200) + await box.fill(box.low, 200))
            with contextlib.suppress(TimeoutError):  # the other may be the quicker one
                async with asyncio.timeout(5):
                    for _ in range(rng.randint(1, 60)):
                        await line(one)
            one.kill()
            two.kill()
    async with worker(box, "last", "settle"):
        await until(lambda: box.redis.llen(box.names.completed), lambda count: count >= 1200, 90)
    done.set()
    await reaping
    assert Counter(await box.list(box.names.completed)) == jobs
    assert await box.list(box.names.dead_letters) == []


@pytest.mark.req("R002-reaper.11")
@pytest.mark.fault(23)
async def test_a_job_that_kills_its_workers_ends_alone_as_a_dead_letter(box: ListRig) -> None:
    """Its neighbours die with it twice and are blamed with it; its third run is alone, and so they live."""
    neighbours = [payload(f"innocent-{number}") for number in range(6)]
    poison = payload("poison")
    await box.push(box.high, *neighbours[:3], poison, *neighbours[3:])
    done = asyncio.Event()
    reaping = asyncio.create_task(_reap_until(box, done))
    alone = False
    for turn in range(20):
        if await box.redis.llen(box.names.dead_letters):
            break
        async with worker(box, f"w{turn}", "poison", "poison") as process:
            while said := await line(process):
                alone = alone or said == "claimed poison alone"
        await until(lambda turn=turn: box.held(f"w{turn}"), lambda held: held == [], 60)
    assert alone
    assert await box.list(box.names.dead_letters) == [poison], "byte for byte, once"
    async with worker(box, "last", "settle"):
        await until(lambda: box.redis.llen(box.names.completed), lambda count: count == 6, 60)
    done.set()
    await reaping
    assert sorted(await box.list(box.names.completed)) == sorted(neighbours)


async def test_a_suspect_that_succeeds_is_forgiven(box: ListRig) -> None:
    (job,) = await box.push(box.low, payload("unlucky"))
    for name in ("w1", "w2"):
        lane = await box.lane(name)
        await box.claim(lane, 1)
        await box.die(lane)
        await box.reaper.run()
    assert await box.list(keys.FILE_SUSPECTS) == [job]
    lane = await box.lane("w3")
    (claim,) = await box.claim(lane, 1, patience=30)
    assert claim.solo
    assert claim.queue == box.low
    assert await box.list(box.names.processing(keys.solo("w3"))) == [job]
    assert await box.settle(lane, [claim], Success()) == ["completed"]
    assert await box.redis.hlen(keys.FILE_CRASHES) == 0


async def test_one_death_is_one_crash_of_a_job_of_which_many_copies_were_held(box: ListRig) -> None:
    job, *_ = await box.push(box.low, *[payload("twin")] * 4)
    lane = await box.lane("w1")
    await box.claim(lane, 4)
    await box.die(lane)
    await box.reaper.run()
    assert await box.list(box.low) == [job] * 4, "none of them waits for a run alone"
    assert await box.redis.hvals(keys.FILE_CRASHES) == [b"1"]


async def test_a_suspect_that_is_given_back_stays_one(box: ListRig) -> None:
    (job,) = await box.push(keys.FILE_SUSPECTS, payload("suspect"))
    lane = await box.lane("w1")
    (claim,) = await box.claim(lane, 1, patience=30)
    await lane.give_back([claim])
    assert await box.list(keys.FILE_SUSPECTS) == [job]


async def test_a_suspect_waits_until_its_worker_is_empty_and_nothing_is_taken_meanwhile(box: ListRig) -> None:
    box.config.worker.reap_interval.FromSeconds(20)  # the length of a round
    await box.fill(box.high, 4)
    lane = await box.lane("w1")
    running = await box.claim(lane, 2)
    await box.push(keys.FILE_SUSPECTS, payload("suspect"))
    await until(lambda: asyncio.sleep(0, lane.suspects), bool)
    await box.nothing(lane)
    await box.settle(lane, running, Success())
    (claim,) = await box.claim(lane, 1)
    assert claim.job_id == "suspect"
    await box.nothing(lane)
    await box.settle(lane, [claim], Success())
    assert len(await box.claim(lane, 2, patience=60)) == 2
