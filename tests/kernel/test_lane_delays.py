"""Work that waits for longer than a lease lasts waits in Redis, not with a worker, and comes though nobody stirs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from lane_rig import Rig, rig, settings, until

from kernel.queue.streams.stream import Claim, Failure, StreamLane, Success

TTL = 0.8
DELAY = 5 * TTL


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server, ttl=TTL)) as opened:
        yield opened


@pytest.mark.fault(6, 26, 51)
async def test_a_delay_of_five_leases_is_one_more_attempt_for_one_of_three_idle_workers(box: Rig) -> None:
    job_id = await box.submit(1)
    lanes = [await box.lane(f"w{n}") for n in range(3)]
    (first,) = await box.claim(lanes[0], 1)
    (settled,) = await box.settle(lanes[0], [first], Failure("DOWNLOAD_HTTP_503", "busy", retry_after=DELAY))
    assert settled.outcome == "retrying"
    due = await box.clients.now_ms() + (DELAY - TTL) * 1000
    claims: list[tuple[StreamLane, Claim]] = []

    async def work(lane: StreamLane) -> None:
        while True:
            for claim in await lane.claim(4, 0.2):
                assert await box.clients.now_ms() > due, "it came before its time"
                claims.append((lane, claim))
                await lane.settle(claim, Success())

    working = [asyncio.create_task(work(lane)) for lane in lanes]
    try:
        await until(lambda: box.ledger.get(job_id), lambda record: record is not None and record.status == "done", 30)
        await box.settled()
    finally:
        for task in working:
            task.cancel()
        ends = await asyncio.gather(*working, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
    assert {claim.attempt for _, claim in claims} == {1}
    if all(lane.epoch == 0 for lane in lanes):  # no machine so slow that a lease lapsed
        assert len(claims) == 1
    record = await box.ledger.get(job_id)
    assert record is not None
    assert (record.resource_completed, record.resource_failed) == (1, 0)
