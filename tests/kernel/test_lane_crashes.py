"""Dead workers cost time, never work; live ones are left alone, however long they take."""

import asyncio
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from child_worker import child, line
from lane_rig import Rig, rig, settings, until

from kernel.queue.streams.stream import Claim, StreamLane, Success
from kernel.redis import keys

TTL = 1.0


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server, ttl=TTL)) as opened:
        yield opened


def worker(box: Rig, name: str, mode: str, *more: str) -> AbstractAsyncContextManager[Process]:
    """A worker process, killed in the end."""
    return child("lane_process.py", box.config.redis.addr, name, TTL, mode, *more)


async def _counts(box: Rig, job_id: str) -> tuple[str, int, int]:
    record = await box.ledger.get(job_id)
    assert record is not None
    return record.status, record.resource_completed, record.resource_failed


@pytest.mark.req("R000-1.14")
@pytest.mark.fault(14, 15)
async def test_what_a_killed_process_held_is_done_by_another(box: Rig) -> None:
    """queue_faults rows 14 and 15: recovery is bounded by the lease and one sweep."""
    async with worker(box, "victim", "hold") as process:
        job_id = await box.submit(12)
        for _ in range(12):
            assert (await line(process)).startswith("claimed")
        heir = await box.lane("heir")
        await box.nothing(heir, 0.3)
        killed = time.monotonic()
        process.kill()
        claims = await box.claim(heir, 12)
    took = time.monotonic() - killed
    assert took < TTL + 1.5
    assert {claim.crashes for claim in claims} == {1}
    assert {claim.attempt for claim in claims} == {0}, "a crash is no attempt"
    await box.settle(heir, claims, Success())
    assert await _counts(box, job_id) == ("done", 12, 0)


@pytest.mark.fault(1, 13, 22)
async def test_a_long_task_is_not_taken_from_a_live_worker(box: Rig) -> None:
    """queue_faults rows 1, 13 and 22: three leases long, two workers, one execution."""
    job_id = await box.submit(1)
    owner, other = await box.lane("w1"), await box.lane("w2")
    (claim,) = await box.claim(owner, 1)
    await box.nothing(other, 3 * TTL)
    assert (await owner.settle(claim, Success())).outcome == "completed"
    assert await _counts(box, job_id) == ("done", 1, 0)


@pytest.mark.fault(17)
async def test_a_busy_event_loop_keeps_its_lease(box: Rig) -> None:
    """queue_faults row 17: a CPU-bound task does not starve the heartbeat."""
    async with worker(box, "busy", "spin") as process:
        await box.submit(1)
        assert (await line(process)).startswith("claimed")
        other = await box.lane("other")
        await box.nothing(other, 2 * TTL)
        assert await line(process) == "settled r1 completed"


@pytest.mark.fault(10)
async def test_an_orphan_without_any_lease_entry_is_found(box: Rig) -> None:
    """queue_faults row 10: the reaper starts from the pending list, so a missing lease counts as expired."""
    job_id = await box.submit(2)
    lane = await box.lane("w1")
    claims = await box.claim(lane, 2)
    await box.redis.delete(*(keys.lease(stream) for stream in box.streams))
    await box.die(lane)
    heir = await box.lane("w2")
    again = await box.claim(heir, 2)
    assert {claim.entry for claim in again} == {claim.entry for claim in claims}
    await box.settle(heir, again, Success())
    assert await _counts(box, job_id) == ("done", 2, 0)


@pytest.mark.fault(11)
async def test_two_reapers_cannot_both_take_an_entry(box: Rig) -> None:
    """queue_faults row 11."""
    await box.submit(40)
    lane = await box.lane("w1")
    await box.claim(lane, 40)
    heirs = [await box.lane(f"heir-{number}") for number in range(4)]
    await box.die(lane)
    taken: list[Claim] = []
    async with asyncio.timeout(10):
        while len(taken) < 40:
            for claims in await asyncio.gather(*(heir.claim(40, 0.1) for heir in heirs)):
                taken += claims
    assert len({claim.entry for claim in taken}) == len(taken) == 40


@pytest.mark.fault(9)
async def test_a_worker_with_more_than_one_sweep_holds_is_emptied(box: Rig) -> None:
    """queue_faults row 9: reaping goes on until nothing is left."""
    await box.submit(1000)
    lane = await box.lane("w1")
    await box.claim(lane, 1000)
    await box.die(lane)
    heir = await box.lane("heir")
    assert len(await box.claim(heir, 1000)) == 1000


@pytest.mark.fault(18, 22)
async def test_a_lapsed_lease_fences_the_worker(box: Rig) -> None:
    job_id = await box.submit(2)
    lane = await box.lane("w1")
    claims = await box.claim(lane, 2)
    lost = asyncio.create_task(lane.lost.wait())
    await box.lapse("w1")
    heir = await box.lane("w2")
    again = await box.claim(heir, 2)
    await asyncio.wait_for(lost, 5)
    assert [lane.holds(claim) for claim in claims] == [False, False]
    assert [one.outcome for one in await box.settle(lane, claims, Success())] == ["fenced"] * 2
    await until(lambda: asyncio.sleep(0, lane.lost.is_set()), lambda still: not still)
    assert [one.outcome for one in await box.settle(heir, again, Success())] == ["completed"] * 2
    assert await _counts(box, job_id) == ("done", 2, 0)
    other = await box.submit(1)
    assert (await lane.settle((await box.claim(lane, 1))[0], Success())).outcome == "completed"
    assert await _counts(box, other) == ("done", 1, 0)


@pytest.mark.fault(5, 17)
async def test_the_script_refuses_what_a_fenced_worker_still_sends(box: Rig) -> None:
    """queue_faults rows 5 and 17: a stale token settles nothing, whatever its sender believes."""
    job_id = await box.submit(2)
    lane = await box.lane("w1")
    claims = await box.claim(lane, 2)
    for stream in box.streams:  # reaped behind its back, its own lease intact
        await box.redis.zadd(keys.lease(stream), {"w2": 1})
        await box.redis.execute_command("XGROUP", "CREATECONSUMER", stream, "workers", "w2")
    lane_name = box.lane_of(job_id)
    for claim in claims:
        await box.redis.execute_command("XCLAIM", lane_name, "workers", "w2", 0, claim.entry)
    heir = await box.lane("w3")
    again = await box.claim(heir, 2)
    assert [one.outcome for one in await box.settle(lane, claims, Success())] == ["fenced"] * 2
    assert await _counts(box, job_id) == ("running", 0, 0)
    await box.settle(heir, again, Success())
    assert await _counts(box, job_id) == ("done", 2, 0)


async def test_a_give_back_costs_nothing(box: Rig) -> None:
    await box.submit(3)
    lane, other = await box.lane("w1"), await box.lane("w2")
    claims = await box.claim(lane, 3)
    await lane.give_back(claims)
    again = await box.claim(other, 3, 2)
    assert {(claim.attempt, claim.crashes) for claim in again} == {(0, 0)}
    assert min(claim.token for claim in again) > max(claim.token for claim in claims)
    await other.stop()
    third = await box.claim(lane, 3, 2)
    assert {(claim.attempt, claim.crashes) for claim in third} == {(0, 0)}, "a drain gives back what is left"


async def test_attempts_survive_a_crash(box: Rig) -> None:
    from kernel.queue.streams.stream import Failure  # noqa: PLC0415  # one test of this file needs it

    await box.submit(1)
    lane = await box.lane("w1")
    (claim,) = await box.claim(lane, 1)
    await lane.settle(claim, Failure("DOWNLOAD_DNS", "no"))
    (claim,) = await box.claim(lane, 1)
    await box.die(lane)
    heir = await box.lane("w2")
    (claim,) = await box.claim(heir, 1)
    assert (claim.attempt, claim.crashes) == (1, 1)


@pytest.mark.fault(23)
async def test_what_kills_every_process_is_a_dead_letter_and_its_neighbours_are_not(box: Rig) -> None:
    """queue_faults row 23: three lives for a poisonous task; the last one alone, so that it alone is blamed."""
    poison = await box.submit(1)
    good = await box.submit(5)
    for life in range(8):
        async with worker(box, f"victim-{life}", "poison", poison) as process:
            await asyncio.wait({asyncio.create_task(process.wait())}, timeout=4 * TTL)
        record = await box.ledger.get(poison)
        if record is not None and record.status == "error":
            break
    heir = await box.lane("heir")
    until_done = until(lambda: _work(box, heir, good), lambda counts: counts[0] == "done", 20)
    assert await until_done == ("done", 5, 0)
    assert await _counts(box, poison) == ("error", 0, 1)
    (letter,) = await box.letters()
    assert letter.failure_code == "SYSTEM_CRASH_LOOP"
    assert letter.task.job_id == poison
    assert "3 times" in letter.failure_message


async def _work(box: Rig, lane: StreamLane, job_id: str) -> tuple[str, int, int]:
    await box.settle(lane, await lane.claim(16, 0.2), Success())
    return await _counts(box, job_id)


async def test_a_suspect_runs_alone(box: Rig) -> None:
    """Nothing else runs beside it, and normal work goes on between."""
    await box.submit(6)
    for name in ("w1", "w2"):
        lane = await box.lane(name)
        await box.claim(lane, 6)
        await box.die(lane)
    heir = await box.lane("heir")
    held: list[Claim] = []
    alone = normal = 0
    async with asyncio.timeout(20):
        while alone < 6:
            claims = await heir.claim(16, 0.05)
            if claims and claims[0].solo:
                assert len(claims) == 1
                assert not held
                assert claims[0].crashes == 2
                alone += 1
                await box.submit(1)
                await box.nothing(heir, 0.1)
                assert (await heir.settle(claims[0], Success())).outcome == "completed"
            elif claims:
                held, normal = claims, normal + 1
                await asyncio.sleep(0.05)
                assert not [claim for claim in await heir.claim(16, 0.05) if claim.solo]
                await box.settle(heir, held, Success())
                held = []
    assert normal, "suspects do not starve the rest"


@pytest.mark.fault(13)
async def test_a_stranded_entry_is_reconciled(box: Rig) -> None:
    """A reply that was lost after the server had moved the entry must not strand it under a live owner."""
    job_id = await box.submit(1)
    lane = await box.lane("w1")
    await box.redis.xreadgroup("workers", "w1", {box.lane_of(job_id): ">"})
    await asyncio.sleep(1.05)  # longer than an entry may be idle, by the clock of the server
    assert await lane.reconcile([]) == 1
    (claim,) = await box.claim(lane, 1)
    assert (await lane.settle(claim, Success())).outcome == "completed"


async def test_reconciliation_leaves_alone_what_runs(box: Rig) -> None:
    await box.submit(4)
    lane = await box.lane("w1")
    claims = await box.claim(lane, 4)
    await asyncio.sleep(1.05)  # longer than an entry may be idle, by the clock of the server
    assert await lane.reconcile(claims) == 0
    assert [one.outcome for one in await box.settle(lane, claims, Success())] == ["completed"] * 4
