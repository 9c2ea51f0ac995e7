"""File jobs are taken from the lists: the higher first, atomically, by whoever is idle, whoever pushed them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_rig import until
from list_rig import ListRig, named, payload, rig, settings

from kernel.queue.files.share import Share
from kernel.queue.work.file_job import FileJob
from kernel.queue.work.types import Success
from kernel.redis import keys


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


@pytest.mark.req("R002-fetch.01", "R002-fetch.02", "R002-fetch.04")
async def test_the_higher_queue_goes_first_and_each_in_its_order(box: ListRig) -> None:
    low = await box.fill(box.low, 3)
    high = await box.fill(box.high, 3)
    lane = await box.lane()
    claims = await lane.claim(4, 0)
    assert [claim.payload for claim in claims] == [*high, low[0]]
    assert [claim.queue for claim in claims] == [box.high] * 3 + [box.low]
    assert await box.list(box.names.processing("w1")) == [low[0], *reversed(high)], "newest first, as BRPOPLPUSH does"
    assert await box.list(box.low) == [low[2], low[1]]


@pytest.mark.req("R002-fetch.02")
async def test_an_empty_higher_queue_costs_a_lower_job_no_timeout(box: ListRig) -> None:
    """One call takes all there is, whatever is empty: twenty jobs one by one, each of which 002 lets wait for 1 s."""
    box.config.worker.brpoplpush_timeout.FromSeconds(5)
    await box.fill(box.low, 20)
    lane = await box.lane()
    async with asyncio.timeout(50):  # with one timeout each it would be 100 s
        for _ in range(20):
            (claim,) = await lane.claim(1, 0)
            assert claim.queue == box.low


@pytest.mark.req("R002-fetch.02")
async def test_an_idle_worker_is_woken_by_a_plain_push(box: ListRig) -> None:
    lane = await box.lane()
    for queue in (box.low, box.high, box.low):
        waiting = asyncio.create_task(lane.claim(4, 60))
        await until(lambda: asyncio.sleep(0, lane.quiet), bool)
        began = time.monotonic()
        (job,) = await box.push(queue, payload())
        (claim,) = await waiting
        assert (claim.payload, claim.queue) == (job, queue)
        assert time.monotonic() - began < 10, "woken, long before it would have looked"


async def test_a_move_that_is_over_is_begun_again_while_somebody_waits(box: ListRig) -> None:
    box.config.worker.brpoplpush_timeout.FromMilliseconds(20)
    lane = await box.lane()
    waiting = asyncio.create_task(lane.claim(4, 60))
    await asyncio.sleep(0.2)  # many moves end meanwhile
    await box.push(box.low, payload())
    assert len(await waiting) == 1


async def test_idle_queues_are_not_polled(box: ListRig) -> None:
    box.config.worker.brpoplpush_timeout.FromSeconds(10)
    lane = await box.lane()
    await lane.claim(4, 0)
    assert lane.quiet
    before = (await box.redis.info("commandstats"))["cmdstat_lmove"]["calls"]
    for _ in range(50):
        assert await lane.claim(4, 0) == []
    assert (await box.redis.info("commandstats"))["cmdstat_lmove"]["calls"] == before
    await box.fill(box.high, 1)  # what waits for a job has one, and need not be waited for
    await box.fill(box.low, 1)


async def test_what_was_brought_while_no_slot_was_free_goes_back(box: ListRig) -> None:
    """Within a second, and to where the next taker finds it first."""
    lane = await box.lane()
    await box.nothing(lane, 0)  # its moves wait on, and nobody claims what they bring
    jobs = await box.fill(box.high, 2)
    await until(lambda: box.list(box.names.processing("w1")), lambda held: held == [jobs[0]])
    assert lane.surplus == 1
    began = time.monotonic()
    await until(lambda: box.list(box.high), lambda waiting: waiting == [jobs[1], jobs[0]])
    assert time.monotonic() - began < 10
    assert await box.held("w1") == []
    other = await box.lane("w2")
    assert [claim.payload for claim in await lane.claim(1, 1) + await other.claim(1, 1)] == jobs


@pytest.mark.req("R002-fetch.03", "R002-fetch.05")
async def test_jobs_are_never_between_two_lists(box: ListRig) -> None:
    """Many takers, looked at all the while: what is counted in one step is always all of them."""
    jobs = Counter(await box.fill(box.high, 150) + await box.fill(box.low, 150))
    lanes = [await box.lane(f"w{number}") for number in range(4)]
    lists = [box.high, box.low, box.names.completed, *(box.names.processing(lane.worker_id) for lane in lanes)]
    census = "local n = 0 for _, key in ipairs(KEYS) do n = n + redis.call('LLEN', key) end return n"

    async def work(number: int) -> None:
        while claims := await lanes[number].claim(3, 0):
            await box.settle(lanes[number], claims, Success())

    working = asyncio.gather(*(work(number) for number in range(4)))
    while not working.done():
        assert await box.redis.eval(census, len(lists), *lists) == 300
    await working
    assert Counter(await box.list(box.names.completed)) == jobs


async def test_each_job_is_taken_by_one_worker(box: ListRig) -> None:
    jobs = await box.fill(box.high, 200)
    lanes = [await box.lane(f"w{number}") for number in range(4)]
    taken = await asyncio.gather(*(lane.claim(60, 1) for lane in lanes))
    assert sorted(claim.payload for claims in taken for claim in claims) == sorted(jobs)


async def test_identical_jobs_are_as_many_jobs_as_were_pushed(box: ListRig) -> None:
    same = payload("twin")
    await box.push(box.high, same, same, same)
    lane = await box.lane()
    first, second, third = await lane.claim(3, 0)
    assert await box.settle(lane, [second], Success()) == ["completed"]
    assert await box.held("w1") == [same, same]
    await lane.give_back([third])
    assert await box.list(box.high) == [same]
    assert await box.settle(lane, [first, third], Success()) == ["completed", "fenced"], "given back is given back"
    assert await box.list(box.names.completed) == [same, same]


@pytest.mark.req("R002-job.01", "R002-job.02", "R002-job.03", "R002-job.04", "R002-job.05")
async def test_a_job_is_read_from_the_members_of_the_seed(box: ListRig) -> None:
    written = payload(
        "j1",
        filepath="/data/ü.bin",
        filesize=7,
        priority="low",
        retries=2,
        creation_time="2025-09-12T01:02:03.123456789Z",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        span_id="b7ad6b7169203331",
    )
    await box.push(box.low, written, named("j2", priority="high", origin_queue=box.high))
    lane = await box.lane()
    claim, plain = await lane.claim(2, 0)
    assert claim.file == FileJob(
        id="j1",
        filepath="/data/ü.bin",
        filesize=7,
        priority="low",
        retries=2,
        creation_time="2025-09-12T01:02:03.123456789Z",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        span_id="b7ad6b7169203331",
    )
    assert claim.traceparent == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert (claim.job_id, claim.job_type, claim.resource_id, claim.attempt) == ("j1", "file", "", 2)
    assert (plain.job_id, plain.traceparent, plain.attempt) == ("j2", "", 0)
    with pytest.raises(TypeError, match="file"):
        _ = claim.task


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\xff\xfe\x00garbage",
        b"[1]",
        b'{"id":"x"}',
        b'{"id":"","filepath":"/a"}',
        b'{"id":"x","filepath":"/a","retries":-1}',
        b'{"id":"x","filepath":"/a","filesize":"big"}',
        '{"id":"x","filepath":"/a"}'.encode("utf-16"),
        b"[" * 100_000,
    ],
    ids=["empty", "garbage", "array", "no-path", "no-id", "negative", "no-number", "utf-16", "deep"],
)
async def test_what_is_no_job_waits_in_the_dead_letters_byte_for_byte(box: ListRig, entry: bytes) -> None:
    _, good = await box.push(box.high, entry, payload())
    await box.push(box.low, entry)
    lane = await box.lane()
    assert len(await lane.claim(3, 0)) == 1
    (again,) = await box.push(box.high, payload())
    (claim,) = await box.claim(lane, 1)
    await until(lambda: box.list(box.names.dead_letters), lambda letters: letters == [entry, entry])
    assert claim.payload == again
    assert await box.held("w1") == [again, good]


async def test_a_queue_that_is_no_list_holds_up_no_other(box: ListRig) -> None:
    await box.redis.set(box.high, "not a list")
    jobs = await box.fill(box.low, 2)
    lane = await box.lane()
    assert [claim.payload for claim in await box.claim(lane, 2)] == jobs
    await box.redis.delete(box.high)
    (late,) = await box.push(box.high, payload())
    assert [claim.payload for claim in await box.claim(lane, 1)] == [late]


@pytest.mark.fault(52)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("slots", [1, 8])
async def test_the_share_of_lower_jobs_flows_under_a_saturated_higher_queue(
    box: ListRig, share: float, slots: int
) -> None:
    box.config.worker.low_priority_share = share
    await box.fill(box.high, 300)
    await box.fill(box.low, 300)
    lane = await box.lane()
    taken: Counter[str] = Counter()
    while taken.total() < 200:
        claims = await lane.claim(slots, 0)
        taken.update(claim.queue for claim in claims)
        await box.settle(lane, claims, Success())
    assert abs(taken[box.low] - share * 200) <= 1


async def test_the_share_goes_round_all_lower_queues(box: ListRig) -> None:
    worker = box.config.worker
    worker.priorities[:] = ["a", "b", "c", "d"]
    worker.queues.clear()
    worker.queues.update({name: f"jobqueue:{name}" for name in worker.priorities})
    worker.low_priority_share = 0.3
    for name in worker.priorities:
        await box.fill(f"jobqueue:{name}", 100)
    lane = await box.lane()
    taken = Counter([(await lane.claim(1, 0))[0].queue for _ in range(100)])
    assert taken["jobqueue:a"] in {70, 71}
    assert all(taken[f"jobqueue:{name}"] in {9, 10, 11} for name in "bcd")


@given(st.floats(0, 0.5), st.lists(st.integers(1, 16), min_size=20, max_size=200), st.integers(2, 5))
def test_a_saturated_share_is_exact_over_time(share: float, limits: list[int], queues: int) -> None:
    credit = Share(share, queues)
    low = 0
    for limit in limits:
        first = credit.low(limit)
        assert 0 <= first <= limit
        low += first
        credit.taken([1] * first + [0] * (limit - first))
    assert abs(low - share * sum(limits)) <= 1


async def test_a_worker_without_a_heartbeat_takes_nothing(box: ListRig) -> None:
    lane = await box.lane()
    jobs = await box.fill(box.high, 2)
    await box.redis.delete(box.names.heartbeat("w1"))
    assert await lane.claim(2, 0) == []
    assert await box.list(box.high) == jobs[::-1]


async def test_what_is_taken_is_registered(box: ListRig) -> None:
    lane = await box.lane()
    assert await box.redis.zscore(keys.FILE_WORKERS, lane.worker_id) == pytest.approx(
        await box.clients.now_ms(), abs=60_000
    )
    assert await box.redis.exists(box.names.heartbeat(lane.worker_id)) == 1
