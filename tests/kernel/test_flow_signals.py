"""A job that is an attempt at a step of a flow: its label, whom its beginning and its end wake, and who tries again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from lane_rig import NEVER_HELD, Rig, rig, settings, task, until
from queue_rig import QueueRig, new_task, queue_rig

from fetchbox.errors.v1.errors_pb2 import REASON_RATE_LIMITED
from fetchbox.jobs.jobs_pb2 import JobState, JobStatus
from kernel.errors import FetchboxError
from kernel.ledger.record import wait_of
from kernel.ledger.task_queue import Swept
from kernel.queue.streams.entry import queued_task, read
from kernel.queue.streams.stream import Claim, Failure, StreamLane, Success
from kernel.redis import keys
from kernel.telemetry import metrics

LABEL = "run-1 approve 2"
PASSING = Failure("HANDLER_HTTP_503", "not now", retry_after=7.5)


@pytest_asyncio.fixture
async def queue(redis_server: str) -> AsyncIterator[QueueRig]:
    async with queue_rig(redis_server) as opened:
        yield opened


@pytest_asyncio.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


async def _entry_label(queue: QueueRig) -> str:
    """The label that the lane reads from the only entry of the queue."""
    ((entry_id, fields),) = await queue.redis.xrange(keys.QUEUE)
    entry = read(keys.QUEUE, 0, [entry_id, [part for pair in fields.items() for part in pair]])
    assert entry.decode() == ""
    return queued_task(entry).flow


@pytest.mark.parametrize("parent", ["", "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"], ids=["plain", "traced"])
async def test_a_label_is_in_the_record_and_in_the_entry(queue: QueueRig, parent: str) -> None:
    new = new_task(flow=LABEL, traceparent=parent)
    await queue.queue.create(new)
    record = await queue.ledger.get(new.job_id)
    assert record is not None
    assert record.flow == LABEL
    assert await _entry_label(queue) == LABEL
    assert (await queue.entries())[0][1].get("traceparent", "") == parent


async def test_a_job_without_a_label_has_none_anywhere(queue: QueueRig) -> None:
    new = new_task()
    await queue.queue.create(new)
    assert "flow" not in await queue.record(new.job_id)
    assert await _entry_label(queue) == ""
    assert "flow" not in (await queue.entries())[0][1]


async def test_what_the_sweep_finishes_keeps_its_label(queue: QueueRig) -> None:
    new = new_task(flow=LABEL)
    await queue.admit(new)
    await queue.record_alone(new)
    assert await queue.queue.sweep(0) == Swept(1, 0)
    assert await _entry_label(queue) == LABEL


async def test_a_full_backlog_refuses_attempts_too_and_keeps_nothing_of_them(queue: QueueRig) -> None:
    queue.config.tasks.max_backlog = 1
    await queue.queue.create(new_task("step", flow=LABEL))
    refused = new_task("step", flow=LABEL)
    with pytest.raises(FetchboxError) as caught:
        await queue.queue.create(refused)
    assert caught.value.reason == REASON_RATE_LIMITED
    assert await queue.record(refused.job_id) == {}
    assert await queue.redis.zcard(keys.outbox(keys.QUEUE)) == 0


async def test_a_creation_that_is_repeated_makes_one_job(queue: QueueRig) -> None:
    new = new_task("step", flow=LABEL)
    created = await queue.queue.create(new)
    assert await queue.queue.finish(new, created) == created
    assert len(await queue.entries()) == 1


class _Signals:
    """What the engines of flows are told."""

    def __init__(self, box: Rig) -> None:
        self._box = box

    async def told(self) -> bool:
        """Whether a run was signalled since the last look: it is due now, and who waits is woken."""
        due = await self._box.redis.zrange(keys.FLOWS_DUE, 0, -1, withscores=True)
        woken = await self._box.redis.xlen(keys.FLOWS_WAKE)
        await self._box.redis.delete(keys.FLOWS_DUE, keys.FLOWS_WAKE)
        if not due:
            assert woken == 0
            return False
        ((run, score),) = due
        assert (run, woken) == (b"run-1", 1)
        now = await self._box.clients.now_ms()
        assert now - 60_000 < score <= now
        return True


async def _one(box: Rig, lane: StreamLane) -> Claim:
    return (await box.claim(lane, 1))[0]


@pytest.mark.parametrize("flow", [LABEL, ""], ids=["of a flow", "of none"])
async def test_start_and_end_of_a_task_signal_its_run_and_no_other(box: Rig, flow: str) -> None:
    signals, more = _Signals(box), {"flow": flow} if flow else {}
    lane = await box.lane()
    for outcome in (Success(), Failure("HANDLER_HTTP_400", "never")):
        await box.create(**more)
        claim = await _one(box, lane)
        assert claim.queued is not None
        assert claim.queued.flow == flow
        assert await signals.told() == bool(flow)
        await lane.settle(claim, outcome)
        assert await signals.told() == bool(flow)


async def test_a_cancellation_signals(box: Rig) -> None:
    signals = _Signals(box)
    job_id = await box.create(flow=LABEL)
    assert await box.ledger.cancel(job_id, "test") == (True, "canceled")
    assert await signals.told()
    assert await box.ledger.cancel(job_id, "test") == (False, "canceled")
    assert not await signals.told()


async def _by_settlement(box: Rig, job_id: str, lane: StreamLane) -> None:
    (claim,) = await box.claim(lane, 1)
    await lane.settle(claim, NEVER_HELD)
    assert (await box.record(job_id))["status"] == "partial"


async def _by_finalization(box: Rig, job_id: str, lane: StreamLane) -> None:
    (claim,) = await box.claim(lane, 1)
    assert (await lane.settle(claim, Success())).final_due
    hold = await box.ledger.begin_final(job_id, "w1", 10_000)
    assert await box.ledger.end_final(job_id, "w1", hold.generation, "") == (True, "done")


@pytest.mark.parametrize("end", [_by_settlement, _by_finalization])
async def test_start_and_end_of_a_manifest_signal(
    box: Rig, end: Callable[[Rig, str, StreamLane], Awaitable[None]]
) -> None:
    signals, box.finalizing = _Signals(box), end is _by_finalization
    job_id = await box.submit(2)
    await box.redis.hset(keys.job(job_id), "flow", LABEL)
    lane = await box.lane()
    first = await _one(box, lane)
    assert await signals.told()
    await lane.settle(first, Success())
    assert not await signals.told(), "half of it is no end"
    await end(box, job_id, lane)
    assert await signals.told()


async def test_a_job_that_is_closed_or_ends_by_the_word_of_others_signals(box: Rig) -> None:
    signals = _Signals(box)
    await box.direct(task("closed", 1, 0))
    lane = await box.lane()
    claim = await _one(box, lane)
    await box.redis.hset(keys.job("closed"), "flow", LABEL)
    await lane.settle(claim, Success())
    assert await box.ledger.close("closed", 0)
    assert await signals.told()
    said = JobStatus(
        job_id="theirs", job_type="default", state=JobState.JOB_STATE_QUEUED, resources_total=1, revision=1
    )
    assert await box.ledger.mirror(said)
    await box.redis.hset(keys.job("theirs"), "flow", LABEL)
    said.state, said.resources_completed, said.revision = JobState.JOB_STATE_COMPLETED, 1, 2
    assert await box.ledger.mirror(said)
    assert await signals.told()


async def test_the_first_failure_ends_the_job_and_leaves_no_dead_letter(box: Rig) -> None:
    dead = metrics.JOBS_DEAD.labels(metrics.queue(keys.QUEUE))
    before = dead._value.get()
    job_id = await box.create(flow=LABEL)
    lane = await box.lane()
    assert (await lane.settle(await _one(box, lane), PASSING)).outcome == "failed"
    record = await box.record(job_id)
    error = {"code": "HANDLER_HTTP_503", "message": "not now", "attempts": 1, "retry_after_ms": 7500}
    assert (record["status"], json.loads(record["error"])) == ("error", error)
    assert wait_of(record["error"].encode()) == 7500
    await box.settled()
    assert await box.letters() == []
    assert dead._value.get() == before
    assert [line.message for line in await box.logs()] == ["not now"]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"retry_after_ms": "1"}', b'{"retry_after_ms": -1}', b'{"retry_after_ms": 1e9}']
)
def test_an_error_that_names_no_wait_names_none(text: bytes) -> None:
    assert wait_of(text) == 0


async def test_the_repetition_of_a_lost_settlement_leaves_no_dead_letter_either(box: Rig) -> None:
    await box.create(flow=LABEL)
    lane = await box.lane()
    claim = await _one(box, lane)
    await lane.settle(claim, PASSING)
    await box.settled()
    await box.enqueue(claim.job_id, flow=LABEL, ledger="1")
    await box.nothing(lane)
    await box.settled()
    assert await box.letters() == []


async def test_a_deferral_costs_no_attempt_and_the_job_goes_on(box: Rig) -> None:
    job_id = await box.create(flow=LABEL)
    lane = await box.lane()
    shut = Failure("HANDLER_CIRCUIT_OPEN", "shut", retry_after=0.0, counts=False)
    assert (await lane.settle(await _one(box, lane), shut)).outcome == "deferred"
    again = await _one(box, lane)
    assert (again.attempt, again.queued.flow if again.queued else "") == (0, LABEL)
    assert (await lane.settle(again, Success())).outcome == "completed"
    assert (await box.record(job_id))["status"] == "done"


async def test_a_crash_is_repaired_by_the_lane_until_the_limit_and_then_it_is_a_dead_letter(box: Rig) -> None:
    box.config.worker.crash_limit = 2
    job_id = await box.create(flow=LABEL)
    for worker in ("w1", "w2"):
        lane = await box.lane(worker)
        (claim,) = await box.claim(lane, 1, patience=20)
        assert claim.queued is not None
        assert claim.queued.flow == LABEL
        await box.die(lane)
    last = await box.lane("w3")

    async def look() -> str:
        assert await last.claim(1, 0.05) == []
        return (await box.record(job_id))["status"]

    await until(look, lambda status: status == "error", patience=20)
    assert json.loads((await box.record(job_id))["error"])["code"] == "SYSTEM_CRASH_LOOP"
    await box.settled()
    (letter,) = await box.letters()
    assert (letter.failure_code, letter.queued_task.flow) == ("SYSTEM_CRASH_LOOP", LABEL)


async def test_what_is_given_back_keeps_its_label(box: Rig) -> None:
    await box.create(flow=LABEL)
    lane = await box.lane()
    await lane.give_back([await _one(box, lane)])
    again = await asyncio.wait_for(_one(box, lane), 20)
    assert again.queued is not None
    assert (again.queued.flow, again.attempt) == (LABEL, 0)
