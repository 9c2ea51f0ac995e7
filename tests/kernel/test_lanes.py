"""The slots of a worker are for both lanes: in halves where both have work, and for either alone where one has none."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from lane_rig import until
from lanes_rig import Both, both
from list_rig import payload, settings

from kernel.queue.lanes import Lanes
from kernel.queue.work.types import Claim, Success
from kernel.redis import keys


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Both]:
    async with both(settings(redis_server, move=1.0)) as opened:
        yield opened


def _kinds(claims: list[Claim]) -> Counter[str]:
    return Counter("file" if claim.queue else "task" for claim in claims)


@pytest.mark.parametrize("slots", [1, 2, 7, 16])
async def test_where_both_have_work_each_gets_half(box: Both, slots: int) -> None:
    await box.tasks.submit(240)
    await box.files.fill(box.files.high, 240)
    lanes = await box.lanes()
    done: Counter[str] = Counter()
    free = slots
    running: list[Claim] = []
    while done.total() < 200:
        claims = await lanes.claim(free, 1)
        running += claims
        free -= len(claims)
        if free == 0 or not claims:
            done += _kinds(running)
            await asyncio.gather(*(lanes.settle(claim, Success()) for claim in running))
            running, free = [], slots
    assert min(done.values()) >= 85, done


async def test_either_lane_alone_has_all_slots(box: Both) -> None:
    lanes = await box.lanes()
    await box.files.fill(box.files.low, 16)
    files = await box.claim(lanes, 16)
    assert _kinds(files) == {"file": 16}
    await asyncio.gather(*(lanes.settle(claim, Success()) for claim in files))
    await box.tasks.submit(16)
    assert _kinds(await box.claim(lanes, 16)) == {"task": 16}


@pytest.mark.parametrize("kind", ["file", "task"])
async def test_an_idle_worker_is_woken_by_either(box: Both, kind: str) -> None:
    lanes = await box.lanes(block=30)
    waiting = asyncio.create_task(lanes.claim(4, 60))
    await until(lambda: asyncio.sleep(0, lanes.lists.quiet), bool)
    began = time.monotonic()
    if kind == "file":
        await box.files.push(box.files.low, payload())
    else:
        await box.tasks.submit(1)
    assert _kinds(await waiting) == {kind: 1}
    assert time.monotonic() - began < 10


async def test_a_read_that_a_file_has_interrupted_goes_on(box: Both) -> None:
    """What it brings later is had by the next claim."""
    lanes = await box.lanes(block=10)
    waiting = asyncio.create_task(lanes.claim(4, 60))
    await until(lambda: asyncio.sleep(0, lanes.stream._reader.waits), bool)
    await box.files.push(box.files.low, payload())
    assert _kinds(await waiting) == {"file": 1}
    await box.tasks.submit(1)
    assert _kinds(await box.claim(lanes, 1)) == {"task": 1}


async def test_idle_lists_cost_a_busy_stream_no_command(box: Both) -> None:
    box.config.worker.brpoplpush_timeout.FromSeconds(10)
    lanes = await box.lanes()
    await lanes.claim(1, 0.05)
    await until(lambda: asyncio.sleep(0, lanes.lists.quiet), bool)
    await box.tasks.submit(100)
    before = (await box.clients.commands.info("commandstats"))["cmdstat_lmove"]["calls"]
    for _ in range(25):
        claims = await box.claim(lanes, 4)
        await asyncio.gather(*(lanes.settle(claim, Success()) for claim in claims))
    assert (await box.clients.commands.info("commandstats"))["cmdstat_lmove"]["calls"] == before


async def test_what_comes_while_all_slots_are_taken_goes_back(box: Both) -> None:
    """A read and the moves may go on with nobody to take what they bring: other workers get it."""
    lanes, other = await box.lanes("w1", block=5), await box.lanes("w2")
    waiting = asyncio.create_task(lanes.claim(1, 60))
    await until(lambda: asyncio.sleep(0, lanes.stream._reader.waits and lanes.lists.quiet), bool)
    await box.files.push(box.files.low, payload())
    (running,) = await waiting
    await box.tasks.submit(1)
    await box.files.push(box.files.low, payload())

    async def taken_by_the_other() -> Counter[str]:
        if lanes.surplus:
            await lanes.return_surplus()
        claims = await other.claim(4, 0.05)
        found.update(_kinds(claims))
        return found

    found: Counter[str] = Counter()
    await until(taken_by_the_other, lambda kinds: kinds == {"file": 1, "task": 1}, 30)
    assert lanes.holds(running)


async def test_what_is_given_back_goes_to_where_it_came_from(box: Both) -> None:
    await box.tasks.submit(2)
    jobs = await box.files.fill(box.files.high, 2)
    lanes = await box.lanes()
    await lanes.give_back(await box.claim(lanes, 4))
    await lanes.stop()
    assert sorted(await box.files.list(box.files.high)) == sorted(jobs)
    other = await box.lanes("w2")
    claims = await box.claim(other, 4)
    assert {claim.attempt for claim in claims} == {0}
    assert {claim.crashes for claim in claims} == {0}


async def test_one_lapsed_lease_voids_the_claims_of_its_lane_alone(box: Both) -> None:
    box.config.worker.heartbeat_ttl.FromMilliseconds(1500)
    await box.tasks.submit(1)
    await box.files.fill(box.files.high, 1)
    lanes = await box.lanes()
    claims = {claim.job_type: claim for claim in await box.claim(lanes, 2)}
    await box.files.lapse("w1")
    await asyncio.wait_for(lanes.lost.wait(), 20)
    assert not lanes.holds(claims["file"])
    assert lanes.holds(claims["default"])
    assert (await lanes.settle(claims["default"], Success())).outcome == "completed"


async def _suspect_file(box: Both) -> bytes:
    (job,) = await box.files.push(keys.FILE_SUSPECTS, payload("suspect"))
    return job


async def _suspect_task(box: Both) -> None:
    """A task that has lost its process twice."""
    await box.tasks.submit(1, "suspect")
    for name in ("a", "b"):
        lane = await box.tasks.lane(name)
        await box.tasks.claim(lane, 1)
        await box.tasks.die(lane)


async def _alone(lanes: Lanes, box: Both, first: list[Claim]) -> Claim:
    """The suspect, which must come while nothing else runs, and with which nothing else may come."""
    for claim in first:
        assert claim.job_id != "suspect"
    running = list(first)
    async with asyncio.timeout(60):
        while True:
            claims = await lanes.claim(4, 0.1)
            running += claims
            if any(claim.job_id == "suspect" for claim in claims):
                (suspect,) = running
                return suspect
            await asyncio.gather(*(lanes.settle(claim, Success()) for claim in running))
            running = []


@pytest.mark.fault(23)
@pytest.mark.parametrize("kind", ["file", "task"])
async def test_a_suspect_of_either_lane_runs_with_nothing_beside_it(box: Both, kind: str) -> None:
    box.config.worker.reap_interval.FromMilliseconds(300)
    if kind == "task":
        await _suspect_task(box)
    await box.tasks.submit(30)
    await box.files.fill(box.files.high, 30)
    lanes = await box.lanes()
    first = await box.claim(lanes, 2)
    if kind == "file":
        await _suspect_file(box)
    suspect = await _alone(lanes, box, first)
    assert suspect.solo
    assert bool(suspect.queue) == (kind == "file")
    ends = time.monotonic() + 1.0  # longer than a round: it is alone for as long as it runs
    while time.monotonic() < ends:
        assert await lanes.claim(4, 0.05) == []
    assert (await lanes.settle(suspect, Success())).outcome == "completed"
    await box.tasks.submit(1)
    await box.files.fill(box.files.low, 1)
    await box.claim(lanes, 4)
