"""A group that is lost and made anew begins behind what it had acknowledged, and loses nothing that it had not."""

from collections.abc import AsyncIterator

import pytest
from lane_rig import Rig, rig, settings, task

from kernel import ids
from kernel.queue.streams.stream import Success
from kernel.redis import keys, scripts

DONE = Success(b"{}")


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


async def _retention(box: Rig) -> None:
    """Nothing is old enough to go, but what is settled is noted."""
    for lane in box.streams:
        await box.clients.call(scripts.TRIM, [lane, keys.cursors(lane)], [3_600_000, 1000, 0, 500])


async def test_a_pruned_job_of_a_direct_producer_does_not_run_again(box: Rig) -> None:
    done, open_, later = ids.uuid7(), ids.uuid7(), ids.uuid7()
    lane = await box.lane()
    await box.direct(task(done, 1, 1))
    await box.settle(lane, await box.claim(lane, 1), DONE)
    await lane._settler.flush()
    await box.direct(task(open_, 1, 1))
    (held,) = await box.claim(lane, 1)
    assert held.job_id == open_
    await _retention(box)
    await box.direct(task(later, 1, 1))
    assert await box.ledger.delete(done, 1 << 52)
    for stream in box.streams:
        await box.redis.xgroup_destroy(stream, keys.GROUP_WORKERS)
    other = await box.lane("w2")
    again = await box.claim(other, 2)
    assert {claim.job_id for claim in again} == {open_, later}
    await box.settle(other, again, DONE)
    await box.nothing(other)
    assert await box.record(done) == {}


async def test_a_stream_that_was_removed_is_read_from_its_beginning(box: Rig) -> None:
    lane = await box.lane()
    await box.direct(task(ids.uuid7(), 1, 1))
    await box.settle(lane, await box.claim(lane, 1), DONE)
    await lane._settler.flush()
    await _retention(box)
    await lane.stop()
    await box.redis.delete(*box.streams)
    stream = box.streams[0]
    # The clock of the server has gone back since.
    await box.redis.xadd(stream, {"payload": b"x"}, id="5-1")
    assert await box.clients.call(scripts.PROVISION, [stream, keys.cursors(stream)], [keys.GROUP_WORKERS]) == 1
    (group,) = await box.redis.xinfo_groups(stream)
    assert group["last-delivered-id"] == b"0-0"
