"""File jobs are taken from the lists: the higher first, atomically, by whoever is idle, whoever pushed them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from list_rig import ListRig, payload, rig, settings

from kernel import keys
from kernel.lanes.types import Success


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


@pytest.mark.req("R002-fetch.01", "R002-fetch.02")
async def test_the_higher_queue_goes_first_and_each_in_its_order(box: ListRig) -> None:
    low = await box.fill(box.low, 3)
    high = await box.fill(box.high, 3)
    lane = await box.lane()
    claims = await lane.claim(4, 0)
    assert [claim.payload for claim in claims] == [*high, low[0]]
    assert [claim.queue for claim in claims] == [box.high] * 3 + [box.low]
    assert await box.list(box.names.processing("w1")) == [low[0], *reversed(high)], "newest first, as BRPOPLPUSH does"
    assert await box.list(box.low) == [low[2], low[1]]


@pytest.mark.req("R002-completion.01", "R002-completion.02")
async def test_what_is_done_goes_onto_the_completed_list_as_it_was(box: ListRig) -> None:
    jobs = await box.fill(box.high, 3)
    lane = await box.lane()
    claims = await lane.claim(8, 0)
    assert await box.settle(lane, claims, Success()) == ["completed"] * 3
    assert await box.list(box.names.completed) == jobs[::-1]
    assert await box.held("w1") == []


async def test_an_idle_worker_is_woken_by_a_plain_push(box: ListRig) -> None:
    lane = await box.lane()
    await box.nothing(lane, 0)
    for queue in (box.low, box.high):
        waiting = asyncio.create_task(lane.claim(4, 30))
        await asyncio.sleep(0)
        began = time.monotonic()
        job = payload()
        await box.redis.lpush(queue, job)
        (claim,) = await waiting
        assert (claim.payload, claim.queue) == (job, queue)
        assert time.monotonic() - began < 5, "no matter how long it would have waited"
    assert keys.FILE_WORKERS
