"""A job that is an attempt at a step of a flow: its label, and whom its beginnings and ends wake."""

from collections.abc import AsyncIterator

import pytest
from queue_rig import QueueRig, new_task, queue_rig

from kernel import keys
from kernel.lanes.entry import queued_task, read
from kernel.ledger.task_queue import Swept

LABEL = "run-1 approve 2"


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[QueueRig]:
    async with queue_rig(redis_server) as opened:
        yield opened


async def _entry_label(box: QueueRig) -> str:
    """The label that the lane reads from the only entry of the queue."""
    ((entry_id, fields),) = await box.redis.xrange(keys.QUEUE)
    entry = read(keys.QUEUE, 0, [entry_id, [part for pair in fields.items() for part in pair]])
    assert entry.decode() == ""
    return queued_task(entry).flow


@pytest.mark.parametrize("parent", ["", "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"], ids=["plain", "traced"])
async def test_a_label_is_in_the_record_and_in_the_entry(box: QueueRig, parent: str) -> None:
    new = new_task(flow=LABEL, traceparent=parent)
    await box.queue.create(new)
    record = await box.ledger.get(new.job_id)
    assert record is not None
    assert record.flow == LABEL
    assert await _entry_label(box) == LABEL
    assert (await box.entries())[0][1].get("traceparent", "") == parent


async def test_a_job_without_a_label_has_none_anywhere(box: QueueRig) -> None:
    new = new_task()
    await box.queue.create(new)
    assert "flow" not in await box.record(new.job_id)
    assert await _entry_label(box) == ""
    assert "flow" not in (await box.entries())[0][1]


async def test_what_the_sweep_finishes_keeps_its_label(box: QueueRig) -> None:
    new = new_task(flow=LABEL)
    await box.admit(new)
    await box.accept(new)
    assert await box.queue.sweep(0) == Swept(1, 0)
    assert await _entry_label(box) == LABEL
