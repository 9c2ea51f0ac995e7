"""What waits in `jobs:stream` is known from its length and what is pending, also where the server lost count."""

from __future__ import annotations

from lane_rig import PASSING, Rig, rig, settings, until

from kernel.log.backlog import Backlogs
from kernel.log.queue_sample import QueueSample, sample_queue
from kernel.queue.streams.stream import Success
from kernel.redis import keys


async def _waiting(box: Rig) -> int:
    return (await sample_queue(box.clients)).waiting


async def test_what_nobody_has_waits_and_what_is_delayed_does_not(redis_server: str) -> None:
    config = settings(redis_server)
    async with rig(config) as box:
        assert await sample_queue(box.clients) == QueueSample()
        box.remote.add("tool")
        lane = await box.lane()
        for _ in range(12):
            await box.create()
        assert await _waiting(box) == 12
        held = await box.claim(lane, 8)
        await until(lambda: _waiting(box), lambda count: count == 4)
        await box.settle(lane, held[:5], Success(result=b"1"))
        await until(lambda: _waiting(box), lambda count: count == 4)
        groups = await box.redis.xinfo_groups(keys.QUEUE)
        await box.settle(lane, held[5:6], PASSING)
        await lane.give_back(held[6:7])
        await box.create("tool")
        # One is held, one waits for its time, one was given back, one is for workers elsewhere.
        assert await _waiting(box) == 6
        assert groups[0]["lag"] in {4, None}
        assert (await Backlogs(box.clients, config).queue()).waiting == 6


async def test_the_oldest_is_found_among_the_unread_and_those_put_aside(redis_server: str) -> None:
    async with rig(settings(redis_server)) as box:
        lane = await box.lane()
        now = await box.clients.now_ms()
        for age in (500_000, 300_000, 100_000):
            await box.redis.xadd(keys.QUEUE, {"job_id": "a", "task": "chat"}, id=f"{now - age}-0")
        assert 500_000 <= (await sample_queue(box.clients)).oldest_ms < 560_000
        await box.redis.xreadgroup(keys.GROUP_WORKERS, lane.worker_id, {keys.QUEUE: ">"}, count=2)
        assert 100_000 <= (await sample_queue(box.clients)).oldest_ms < 160_000, "who is in work does not wait"
        entry = f"{now - 300_000}-0"
        await box.redis.xclaim(keys.QUEUE, keys.GROUP_WORKERS, keys.routed("tool"), 0, [entry])
        assert 300_000 <= (await sample_queue(box.clients)).oldest_ms < 360_000
