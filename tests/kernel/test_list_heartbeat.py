"""A worker of file jobs has one standing heartbeat, and holds nothing once it has lapsed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from lane_rig import until
from list_rig import PASSING, ListRig, payload, rig, settings

from kernel.errors import FetchboxError
from kernel.queue.work.types import Success
from kernel.redis import keys

TTL = 1.5


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server, ttl=TTL)) as opened:
        yield opened


async def _beat(box: ListRig, worker: str = "w1") -> dict[str, object]:
    found = await box.redis.get(box.names.heartbeat(worker))
    return json.loads(found) if found else {}


@pytest.mark.req("R002-heartbeat.01")
async def test_the_key_stands_before_the_first_job_and_tells_what_the_worker_runs(box: ListRig) -> None:
    lane = await box.lane()
    beat = await _beat(box)
    assert (beat["worker_id"], beat["count"], beat["jobs"]) == ("w1", 0, [])
    assert beat["pid"]
    assert beat["host"]
    jobs = await box.fill(box.high, 2)
    claims = await box.claim(lane, 2)
    told = await until(lambda: _beat(box), lambda beat: beat["count"] == 2)
    assert told["jobs"] == [job.decode() for job in jobs], "the payloads, as they are"
    await box.settle(lane, claims, Success())
    await until(lambda: _beat(box), lambda beat: beat["count"] == 0)


async def test_a_heartbeat_is_small_however_much_a_worker_holds(box: ListRig) -> None:
    lane = await box.lane()
    await box.fill(box.high, 150)
    await box.fill(box.low, 3, note="x" * 70_000)
    await box.claim(lane, 153)
    told = await until(lambda: _beat(box), lambda beat: beat["count"] == 153)
    jobs = told["jobs"]
    assert isinstance(jobs, list)
    assert len(jobs) == 100
    assert len(json.dumps(told)) < 100_000


@pytest.mark.req("R002-heartbeat.02", "R002-config.15")
async def test_the_key_expires_after_the_time_of_the_configuration(box: ListRig) -> None:
    await box.lane()
    assert 0 < await box.redis.pttl(box.names.heartbeat("w1")) <= TTL * 1000


@pytest.mark.req("R002-heartbeat.03")
@pytest.mark.fault(1, 17, 22)
async def test_a_job_of_many_lifetimes_stays_with_its_worker(box: ListRig) -> None:
    """Also while its worker's event loop stands still for longer than a lifetime."""
    await box.fill(box.high, 1)
    lane, other = await box.lane("w1"), await box.lane("w2")
    (claim,) = await box.claim(lane, 1)
    ends = time.monotonic() + 2 * TTL
    while time.monotonic() < ends:
        await box.reaper.run()
        await box.nothing(other, 0.1)
    time.sleep(1.5 * TTL)  # noqa: ASYNC251 - the loop stands still, and that is the point
    await box.reaper.run()
    assert lane.holds(claim)
    assert await box.settle(lane, [claim], Success()) == ["completed"]


@pytest.mark.fault(18)
async def test_a_lapsed_worker_holds_nothing_until_it_begins_anew(box: ListRig) -> None:
    """The key goes while it works: what it held is the others', and what it still says is fenced."""
    jobs = await box.fill(box.high, 2)
    lane = await box.lane("w1")
    claims = await box.claim(lane, 2)
    await box.lapse("w1")
    await asyncio.wait_for(lane.lost.wait(), 20)
    assert not any(lane.holds(claim) for claim in claims)
    assert await box.settle(lane, [claims[0]], Success()) == ["fenced"]
    assert await box.list(box.names.completed) == []
    await until(lambda: asyncio.sleep(0, lane.lost.is_set()), lambda lost: not lost)
    assert await _beat(box), "it is there again"
    again = await box.claim(lane, 2, patience=30)
    assert sorted(claim.payload for claim in again) == sorted(jobs), "its own look gives back what it had"
    assert await box.settle(lane, [claims[1]], Success()) == ["fenced"], "a claim of the life before stays void"
    assert await box.settle(lane, again, Success()) == ["completed"] * 2


async def test_a_lapsed_heartbeat_is_never_revived(box: ListRig) -> None:
    """A renewal that comes too late says so, however it is called."""
    lane = await box.lane("w1")
    heartbeat = lane._heartbeat
    assert heartbeat is not None
    await asyncio.to_thread(heartbeat.stop)
    await box.redis.delete(box.names.heartbeat("w1"))
    client = box.clients.thread_client(5)
    assert not await asyncio.to_thread(heartbeat._send, client, False)
    assert await box.redis.exists(box.names.heartbeat("w1")) == 0
    client.close()


@pytest.mark.req("R002-reaper.09")
async def test_what_the_reaper_took_is_settled_by_whoever_has_it(box: ListRig) -> None:
    """The old owner does not know yet that it has lapsed: the list decides, not what it believes."""
    (job,) = await box.fill(box.high, 1)
    lane, heir = await box.lane("w1"), await box.lane("w2")
    (claim,) = await box.claim(lane, 1)
    await box.redis.delete(box.names.heartbeat("w1"))
    await box.redis.zadd(keys.FILE_WORKERS, {"w1": 0})
    assert await box.reaper.run() == 1
    (again,) = await box.claim(heir, 1)
    assert await box.settle(lane, [claim], PASSING) == ["fenced"]
    assert await box.delayed() == []
    assert await box.settle(heir, [again], Success()) == ["completed"]
    assert await box.list(box.names.completed) == [job]


async def test_a_start_without_redis_is_refused(box: ListRig) -> None:
    box.config.redis.addr = "127.0.0.1:1"
    from kernel.redis.clients import RedisClients  # noqa: PLC0415 - one that reaches nobody

    nowhere = RedisClients(box.config.redis)
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await box.lane("w9", clients=nowhere)
    await nowhere.close()


async def test_a_stopped_worker_says_goodbye(box: ListRig) -> None:
    lane = await box.lane("w1")
    await box.push(box.high, payload())
    await box.claim(lane, 1)
    await lane.stop()
    await lane.stop()
    assert await _beat(box) == {}
    assert await box.redis.zcard(keys.FILE_WORKERS) == 0
