"""The places of the queue: whoever waits for nothing any more holds none, and what is counted is true."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from queue_rig import QueueRig, queue_rig

from kernel import ids
from kernel.errors import FetchboxError
from kernel.ledger.task_queue import NewTask
from kernel.log.backlog import Backlogs
from kernel.redis import keys


@pytest.fixture
async def rig(redis_server: str) -> AsyncIterator[QueueRig]:
    async with queue_rig(redis_server, limit=1000) as opened:
        yield opened


def _new(task: str = "chat") -> NewTask:
    return NewTask(ids.uuid7(), task, b"{}", 60)


def _limit(rig: QueueRig, max_backlog: int = 1000, of_task: int = 0) -> None:
    rig.config.tasks.max_backlog = max_backlog
    rig.config.tasks.chat.max_backlog = of_task


async def _open(rig: QueueRig) -> dict[str, int]:
    found = await rig.redis.hgetall(keys.open_tasks())
    return {task.decode(): int(count) for task, count in found.items()}


async def _queued(rig: QueueRig, count: int, task: str = "chat") -> list[NewTask]:
    made = [_new(task) for _ in range(count)]
    for new in made:
        await rig.queue.create(new)
    return made


@pytest.mark.parametrize("limits", [{"max_backlog": 3}, {"of_task": 3}], ids=["all", "task"])
async def test_a_canceled_job_that_waits_frees_its_place_at_once(rig: QueueRig, limits: dict[str, int]) -> None:
    """F2-13, for the limit of all and for that of a task; no worker runs."""
    _limit(rig, **limits)
    for _ in range(3):
        jobs = await _queued(rig, 3)
        with pytest.raises(FetchboxError):
            await rig.queue.create(_new())
        for job in jobs:
            assert await rig.ledger.cancel(job.job_id, "test") == (True, "canceled")
        assert await rig.redis.xlen(keys.QUEUE) == 0
        assert await _open(rig) == {}


@pytest.mark.parametrize("name", [keys.DELAYED, keys.RETURNED, keys.SLOTS, "_for.chat", "_suspect"])
async def test_so_does_one_that_was_put_aside(rig: QueueRig, name: str) -> None:
    (job, other) = await _queued(rig, 2)
    (entry, _) = await rig.deliver(2)
    await rig.redis.xclaim(keys.QUEUE, keys.GROUP_WORKERS, name, 0, [entry])
    await rig.ledger.cancel(job.job_id, "test")
    assert [fields["job_id"] for _, fields in await rig.entries()] == [other.job_id]
    assert (await rig.redis.xpending(keys.QUEUE, keys.GROUP_WORKERS))["pending"] == 1
    assert await _open(rig) == {"chat": 1}


async def test_the_entry_in_the_hands_of_a_worker_is_left_to_it(rig: QueueRig) -> None:
    (job,) = await _queued(rig, 1)
    entries = await rig.deliver()
    await rig.ledger.cancel(job.job_id, "test")
    assert await _open(rig) == {"chat": 1}
    await rig.acknowledge(*entries)
    assert await _open(rig) == {}


async def test_a_job_whose_record_was_deleted_frees_its_place(rig: QueueRig) -> None:
    _limit(rig, max_backlog=3)
    jobs = await _queued(rig, 3)
    await rig.redis.delete(*(keys.job(job.job_id) for job in jobs))
    await rig.queue.create(_new())
    assert await _open(rig) == {"chat": 1}


@pytest.mark.parametrize("how", ["xdel", "xtrim", "del", "xdel-read"])
async def test_what_is_open_is_true_after_others_have_deleted(rig: QueueRig, how: str) -> None:
    """The queue is not empty meanwhile, and goes on being used."""
    await _queued(rig, 150)
    await _queued(rig, 150, "plan")
    all_ids = [entry for entry, _ in await rig.entries()]
    if how == "xdel":
        await rig.redis.xdel(keys.QUEUE, *all_ids[100:200])
    elif how == "xdel-read":
        await rig.redis.xdel(keys.QUEUE, *(await rig.deliver(100)))
    elif how == "xtrim":
        await rig.redis.xtrim(keys.QUEUE, maxlen=200, approximate=False)
    else:
        await rig.redis.delete(keys.QUEUE)
    await _queued(rig, 5, "plan")
    await rig.leftovers.recount()
    rest = [fields["task"] for _, fields in await rig.entries()]
    assert await _open(rig) == {task: rest.count(task) for task in set(rest)}


async def test_entries_come_and_go_while_they_are_counted(rig: QueueRig) -> None:
    await _queued(rig, 250)
    found = [entry for entry, _ in await rig.entries()]
    await rig.redis.xdel(keys.QUEUE, *found[::10])
    await rig.count_some(50)
    await rig.acknowledge(found[1], found[-1])
    await _queued(rig, 20)
    while await rig.count_some(50):
        pass
    assert await _open(rig) == {"chat": await rig.redis.xlen(keys.QUEUE)}


@pytest.mark.parametrize("how", ["xdel", "xtrim", "destroyed"])
async def test_the_lag_of_a_group_is_true_after_others_have_deleted(rig: QueueRig, how: str) -> None:
    await _queued(rig, 60)
    read = await rig.deliver(20)
    await rig.acknowledge(*read)
    unread = [entry for entry, _ in await rig.entries()]
    if how == "xdel":
        await rig.redis.xdel(keys.QUEUE, *unread[5:15])
    elif how == "xtrim":
        await rig.redis.xtrim(keys.QUEUE, maxlen=30, approximate=False)
    else:
        await rig.redis.xgroup_destroy(keys.QUEUE, keys.GROUP_WORKERS)
    await _queued(rig, 1)
    assert (await Backlogs(rig.clients, rig.config).queue()).waiting == await rig.redis.xlen(keys.QUEUE)
