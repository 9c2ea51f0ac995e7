"""The kinds of faults that other queues on lists have had, tried on ours, while the server misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from list_rig import NEVER, PASSING, ListRig, payload, rig, settings

from kernel.errors import FetchboxError
from kernel.queue.files.lane import ListLane
from kernel.queue.work.types import Claim, Success
from kernel.redis import keys, scripts
from tests.outages.rig import UnrulyRedis, until

KILL = "CLIENT KILL TYPE normal SKIPME yes"


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[ListRig, UnrulyRedis]]:
    """A rig on a server that the test may do anything to."""
    server = UnrulyRedis(tmp_path)
    server.start()
    try:
        async with rig(settings(server.addr, ttl=20)) as opened:
            yield opened, server
    finally:
        server.stop()


async def _until(box: ListRig, name: str, count: int, patience: float = 40) -> list[bytes]:
    """The list once it has so many jobs."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    found: list[bytes] = []
    while len(found) < count:
        with contextlib.suppress(FetchboxError):
            found = await box.list(name)
        assert loop.time() < end, f"{len(found)} of {count} in {name}"
        await asyncio.sleep(0.02)
    return found


@contextlib.asynccontextmanager
async def _working(lane: ListLane) -> AsyncIterator[Counter[bytes]]:
    """Every claim of the lane is done at once; what was claimed, how often."""
    claimed: Counter[bytes] = Counter()

    async def settle(claim: Claim) -> None:
        await lane.settle(claim, Success())

    async def work() -> None:
        running: set[asyncio.Task[None]] = set()
        while True:
            for claim in await lane.claim(16, 0.2):
                claimed[claim.payload] += 1
                running.add(one := asyncio.create_task(settle(claim)))
                one.add_done_callback(running.discard)

    working = asyncio.create_task(work())
    try:
        yield claimed
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def _empty(box: ListRig) -> None:
    places = await box.places()
    left = {name: count for name, jobs in places.items() if (count := sum(jobs.values()))}
    assert set(left) <= {box.names.completed}, left


@pytest.mark.fault(8, 20, 40)
@pytest.mark.parametrize("command", [KILL, "SCRIPT FLUSH"])
async def test_every_job_is_done_once_whatever_is_lost_meanwhile(
    own: tuple[ListRig, UnrulyRedis], command: str
) -> None:
    box, server = own
    lane = await box.lane()
    jobs: list[bytes] = []
    async with _working(lane):
        for number in range(100):
            job = payload()
            server.do(f"LPUSH {box.low} {json.dumps(job.decode())}")  # past the proxy, as a producer elsewhere
            jobs.append(job)
            if number % 10 == 0:
                server.do(command)
            await asyncio.sleep(0.01)
    async with _working(lane):
        done = await _until(box, box.names.completed, len(jobs))
    assert Counter(done) == Counter(jobs)
    await _empty(box)


@pytest.mark.fault(20, 43)
async def test_outcomes_wait_for_a_master_and_none_is_swallowed(own: tuple[ListRig, UnrulyRedis]) -> None:
    box, server = own
    jobs = await box.fill(box.high, 12)
    lane = await box.lane()
    claims = await box.claim(lane, 12)
    replica = await server.replica()
    await server.hand_over(replica)
    kinds = [Success(), NEVER, PASSING] * 4
    told = await asyncio.gather(*(lane.settle(claim, kind) for claim, kind in zip(claims, kinds, strict=True)))
    assert Counter(one.outcome for one in told) == {"completed": 4, "failed": 4, "retrying": 4}
    async with _working(lane):
        await _until(box, box.names.completed, 8)
    assert len(await box.list(box.names.dead_letters)) == 4
    assert {json.loads(job)["id"] for job in await box.list(box.names.completed)} == {
        json.loads(job)["id"] for job in (*jobs[0::3], *jobs[2::3])
    }
    assert await box.held("w1") == []


@pytest.mark.fault(47)
async def test_without_memory_jobs_are_taken_and_done_and_none_is_accepted(own: tuple[ListRig, UnrulyRedis]) -> None:
    box, server = own
    jobs = await box.fill(box.low, 30)
    server.do("CONFIG SET maxmemory 1")
    assert server.say(f"LPUSH {box.low} x").startswith(b"-OOM"), "the server refuses new work itself"
    lane = await box.lane()
    async with _working(lane):
        done = await _until(box, box.names.completed, len(jobs))
    server.do("CONFIG SET maxmemory 0")
    assert Counter(done) == Counter(jobs)


@pytest.mark.fault(35)
async def test_a_worker_goes_on_after_all_data_was_lost(own: tuple[ListRig, UnrulyRedis]) -> None:
    """Its lease went with the data, so what it ran is void; it begins anew by itself."""
    box, server = own
    await box.fill(box.high, 4)
    lane = await box.lane()
    claims = await box.claim(lane, 2)
    server.do("FLUSHALL")
    job = payload()
    server.do(f"LPUSH {box.low} {json.dumps(job.decode())}")
    async with _working(lane) as claimed:
        assert await _until(box, box.names.completed, 1) == [job]
    assert claimed == {job: 1}
    assert await box.settle(lane, claims, Success()) == ["fenced", "fenced"], "others may have had them"
    assert await box.list(box.names.completed) == [job]


@pytest.mark.fault(26, 27, 51)
async def test_a_retry_comes_in_time_though_nobody_stirs_and_no_slot_waits_for_it(box: ListRig) -> None:
    box.config.worker.backoff.base.FromMilliseconds(700)
    box.config.worker.backoff.max.FromMilliseconds(700)
    (job,) = await box.fill(box.high, 1)
    lane = await box.lane()
    (claim,) = await box.claim(lane, 1)
    before = await box.clients.now_ms()
    assert await box.settle(lane, [claim], PASSING) == ["retrying"]
    assert not lane.busy, "its slot is free"
    ((queue, waits, due),) = await box.delayed()
    assert (queue, json.loads(waits)["retries"]) == (box.high, 1)
    assert due >= before + 700, "scored by its time, and not by a priority"
    (again,) = await box.claim(lane, 1, patience=20)
    assert await box.clients.now_ms() >= due
    assert (again.attempt, again.queue) == (1, box.high)
    assert json.loads(job) | {"retries": 1} == {
        k: v for k, v in json.loads(again.payload).items() if k in json.loads(job)
    }


@pytest.mark.fault(29)
@pytest.mark.parametrize("junk", [b"", b"\xff\x00", b"[]", b'{"id": 1}', b"{", b"null"], ids=repr)
async def test_what_is_no_job_is_kept_byte_for_byte_among_the_dead_letters(box: ListRig, junk: bytes) -> None:
    await box.push(box.high, junk)
    good = await box.fill(box.high, 1)
    lane = await box.lane()
    (claim,) = await box.claim(lane, 1)
    assert claim.payload == good[0], "what lies behind is done"
    assert await _until(box, box.names.dead_letters, 1) == [junk]


@pytest.mark.fault(39)
async def test_an_idle_worker_blocks_one_connection_a_queue_however_many_wait(box: ListRig) -> None:
    lane = await box.lane()
    waiting = [asyncio.create_task(lane.claim(1, 20)) for _ in range(50)]
    blocked, seen = -1, list[int]()
    while len(seen) < 20:
        await asyncio.sleep(0.02)
        blocked = (await box.redis.info("clients"))["blocked_clients"]
        seen.append(blocked)
    assert max(seen) <= len(box.names.queues), seen
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.fault(53)
async def test_a_job_leaves_the_end_of_a_short_list_of_its_own_worker(box: ListRig) -> None:
    """The oldest stand at the tail, where a removal begins to look; the queues themselves are never searched."""
    same = payload("twice")
    await box.push(box.high, same, payload("between"), same)
    lane = await box.lane()
    claims = await box.claim(lane, 3)
    assert await box.settle(lane, claims[:1], Success()) == ["completed"]
    assert [json.loads(job)["id"] for job in await box.held("w1")] == ["twice", "between"], "the oldest copy went"
    for script in scripts.ALL:
        for count in re.findall(r"'LREM', \w+, ([^,]+),", script.source):
            assert count.strip() != "0", f"{script.name} looks at a whole list"
            assert script.name in {"file_settle", "file_purge", "file_replay"}, (
                "the dead letters, and what a worker holds"
            )


@pytest.mark.fault(5)
async def test_a_retry_and_its_own_redelivery_are_one_job(own: tuple[ListRig, UnrulyRedis]) -> None:
    """The reply to the settlement is lost, and its worker dies: the job waits for its retry and is nowhere else."""
    box, server = own
    box.config.worker.backoff.base.FromSeconds(60)
    box.config.worker.backoff.max.FromSeconds(60)
    await box.fill(box.high, 1)
    lane = await box.lane()
    (claim,) = await box.claim(lane, 1)
    server.proxy.mute()
    settling = lane.settle(claim, PASSING)
    await until(lambda: server.say(f"ZCARD {keys.FILE_DELAYED}") == b":1\r\n", "the outcome did not arrive")
    assert not settling.done()
    server.proxy.cut()
    server.proxy.flow()
    assert (await settling).outcome == "retrying", "as it was recorded the first time"
    for _ in range(10):
        with contextlib.suppress(FetchboxError):
            await box.redis.ping()
    await box.die(lane)
    await box.reaper.run()
    places = await box.places()
    assert sum(sum(jobs.values()) for jobs in places.values()) == 1, places
    ((queue, job, _),) = await box.delayed()
    await box.redis.delete(keys.FILE_DELAYED)
    await box.push(queue, job)  # its time has come
    other = await box.lane("w2")
    async with _working(other):
        await _until(box, box.names.completed, 1)
    await _empty(box)
    assert await box.redis.exists(keys.FILE_DELAYED) == 0
