"""A connection is cut exactly between what Redis has done and its reply: nothing is done twice, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from cutting import Cutting, cutting
from lane_rig import until
from list_rig import NEVER, PASSING, ListRig, payload, rig, settings

from fetchbox.config.v1.config_pb2 import Redis
from kernel.queue.files.lane import ListLane
from kernel.queue.work.types import Failure, Success
from kernel.redis import scripts
from kernel.redis.clients import RedisClients


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server, ttl=5)) as opened:
        yield opened


@pytest.fixture
async def cut(redis_server: str) -> AsyncIterator[Cutting]:
    async with cutting(redis_server) as proxy:
        yield proxy


@pytest.fixture
async def lane(box: ListRig, cut: Cutting) -> AsyncIterator[ListLane]:
    """A lane behind the proxy."""
    through = Redis()
    through.CopyFrom(box.config.redis)
    through.addr = cut.addr
    clients = await RedisClients.open(through)
    made = await box.lane("w1", clients=clients)
    yield made
    await made.stop()
    box.lanes.remove(made)
    await clients.close()


async def _all(box: ListRig) -> Counter[bytes]:
    """Every job that there is, wherever it is."""
    found: Counter[bytes] = Counter()
    for jobs in (await box.places()).values():
        found += jobs
    return found


@pytest.mark.fault(20)
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("outcome", [Success(), NEVER, PASSING], ids=["done", "dead", "retried"])
@pytest.mark.parametrize("cuts", [1, 3])
async def test_an_outcome_is_recorded_once_however_often_its_reply_is_lost(
    box: ListRig, lane: ListLane, cut: Cutting, copies: int, outcome: Success | Failure, cuts: int
) -> None:
    """Also where other copies of the very same job lie on the list, which a repetition could take for this one."""
    box.config.worker.backoff.base.FromSeconds(100)
    same = payload("twin")
    await box.push(box.high, *[same] * copies)
    claims = await box.claim(lane, copies)
    cut.lose(scripts.FILE_SETTLE.sha, cuts)
    told = await box.settle(lane, claims[:1], outcome)
    assert cut.cuts == cuts
    assert told == [{"Success": "completed"}.get(type(outcome).__name__, "failed" if outcome is NEVER else "retrying")]
    assert await box.held("w1") == [same] * (copies - 1)
    assert (await _all(box)).total() == copies
    assert await box.settle(lane, claims[1:], Success()) == ["completed"] * (copies - 1)


async def test_what_is_given_back_is_given_back_once(box: ListRig, lane: ListLane, cut: Cutting) -> None:
    same = payload("twin")
    await box.push(box.high, same, same)
    first, second = await box.claim(lane, 2)
    cut.lose(scripts.FILE_SETTLE.sha)
    await lane.give_back([first])
    assert cut.cuts == 1
    assert await box.list(box.high) == [same]
    assert await box.held("w1") == [same]
    assert await box.settle(lane, [second], Success()) == ["completed"]


@pytest.mark.fault(13)
@pytest.mark.parametrize("copies", [1, 2])
async def test_jobs_that_were_taken_for_nobody_come_back(
    box: ListRig, lane: ListLane, cut: Cutting, copies: int
) -> None:
    """Beside a running copy of the same job, too: that one stays."""
    same = payload("twin")
    await box.push(box.high, *[same] * copies)
    running = await box.claim(lane, copies - 1) if copies > 1 else []
    cut.lose(scripts.FILE_TAKE.sha)
    assert await lane.claim(1, 0) == []
    assert cut.cuts == 1
    assert await box.held("w1") == [same] * copies
    (claim,) = await box.claim(lane, 1, patience=30)
    assert await box.settle(lane, [*running, claim], Success()) == ["completed"] * copies
    assert await _all(box) == {same: copies}


async def test_a_job_that_a_blocked_move_brought_to_nobody_comes_back(
    box: ListRig, lane: ListLane, cut: Cutting
) -> None:
    cut.lose("BLMOVE", 2)
    await box.nothing(lane, 0)
    await until(lambda: asyncio.sleep(0, cut.cuts), lambda cuts: cuts == 2)
    (job,) = await box.fill(box.low, 1)
    (claim,) = await box.claim(lane, 1, patience=30)
    assert claim.payload == job
    assert await box.settle(lane, [claim], Success()) == ["completed"]
    assert await _all(box) == {job: 1}


async def test_what_a_move_has_brought_runs_though_the_look_for_more_is_lost(
    box: ListRig, lane: ListLane, cut: Cutting
) -> None:
    """At once: it is neither forgotten nor given back in the end, which is the one RPUSH that there is."""
    await box.nothing(lane, 0)
    before = (await box.redis.info("commandstats")).get("cmdstat_rpush")
    cut.lose(scripts.FILE_TAKE.sha)
    claiming = asyncio.create_task(lane.claim(2, 60))
    (job,) = await box.fill(box.high, 1)
    (claim,) = await claiming
    assert cut.cuts == 1
    assert claim.payload == job
    assert (await box.redis.info("commandstats")).get("cmdstat_rpush") == before
    assert await box.settle(lane, [claim], Success()) == ["completed"]
    assert await _all(box) == {job: 1}


async def test_a_due_job_is_put_back_once(box: ListRig, lane: ListLane, cut: Cutting) -> None:
    (job,) = await box.fill(box.high, 1)
    (claim,) = await box.claim(lane, 1)
    cut.lose(scripts.FILE_DUE.sha)
    await box.settle(lane, [claim], PASSING)
    (again,) = await box.claim(lane, 1, patience=30)
    assert cut.cuts == 1
    assert again.attempt == 1
    await box.nothing(lane)
    assert await _all(box) == {again.payload: 1}
    assert job != again.payload


async def test_every_reply_may_be_lost_now_and_then(box: ListRig, lane: ListLane, cut: Cutting) -> None:
    """Everything at once, with few names: in the end each copy of each job is done exactly once."""
    replies = [scripts.FILE_SETTLE.sha, scripts.FILE_TAKE.sha, "BLMOVE", scripts.FILE_SETTLE.sha] * 3
    jobs: Counter[bytes] = Counter()
    to_lose = iter(replies)
    async with asyncio.timeout(100):
        while cut.cuts < len(replies) or await box.redis.llen(box.names.completed) < jobs.total():
            if cut.left == 0 and (reply := next(to_lose, None)) is not None:
                cut.lose(reply)
            if cut.cuts < len(replies):
                some = [payload(f"job-{number % 7}") for number in range(jobs.total(), jobs.total() + 2)]
                jobs.update(some)
                await box.push(box.high, *some)
            claims = await lane.claim(4, 0.1)
            await box.settle(lane, claims, Success())
    assert await _all(box) == jobs
    assert Counter(await box.list(box.names.completed)) == jobs
