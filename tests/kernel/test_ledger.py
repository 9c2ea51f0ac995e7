"""The job record and its legal transitions."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from lane_rig import Rig, rig, settings

from fetchbox.jobs.jobs_pb2 import JobState, JobStatus
from kernel import ids
from kernel.errors import FetchboxError
from kernel.ledger import JobRecord, job_state, job_status, operator_status
from kernel.ledger.record import manifest_key, results_key
from kernel.redis import keys

FOREVER = 9_000_000_000_000_000


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


async def _status(box: Rig, job_id: str) -> str:
    record = await box.ledger.get(job_id)
    return record.status if record else "gone"


@pytest.mark.req("R001-1.47", "R001-1.48")
async def test_accept_writes_the_record_and_its_first_event_once(box: Rig) -> None:
    record = JobRecord(job_id=ids.uuid7(), job_type="default", tenant="t", resource_total=3, trace_id="ab" * 16)
    assert await box.ledger.accept(record)
    assert not await box.ledger.accept(record)
    found = await box.ledger.get(record.job_id)
    assert found is not None
    assert (found.status, found.tenant, found.resource_total, found.revision) == ("queued", "t", 3, 1)
    assert found.manifest_key == manifest_key("fetchbox", "default", record.job_id)
    assert found.log_offset == (found.created_ms << 20) - 1
    assert await box.events(record.job_id) == ["queued"]
    assert await box.redis.ttl(keys.job(record.job_id)) == -1


async def test_a_record_is_small(box: Rig) -> None:
    record = JobRecord(job_id=ids.uuid7(), job_type="default", resource_total=1)
    await box.ledger.accept(record)
    assert await box.ledger.size(record.job_id) < 1200  # 0.8 KB in Valkey 9, 1.1 KB in Redis 7
    assert await box.redis.execute_command("OBJECT", "ENCODING", keys.job(record.job_id)) == b"listpack"


async def test_tasks_and_outbox_move_together_and_once(box: Rig) -> None:
    job_id = ids.uuid7()
    await box.ledger.enter_outbox(job_id)
    await box.ledger.enter_outbox(job_id)
    assert await box.ledger.outbox(0) == [job_id]
    assert await box.ledger.outbox(60_000) == []
    assert await box.ledger.publish(job_id, [b"a"] * 2500, "00-trace")
    assert not await box.ledger.publish(job_id, [b"a"])
    assert await box.ledger.outbox(0) == []
    assert await box.redis.xlen(box.lane_of(job_id)) == 2500


async def test_racing_publications_add_the_tasks_once(box: Rig) -> None:
    job_id = ids.uuid7()
    await box.ledger.enter_outbox(job_id)
    done = await asyncio.gather(*(box.ledger.publish(job_id, [b"a", b"b"]) for _ in range(20)))
    assert sum(done) == 1
    assert await box.redis.xlen(box.lane_of(job_id)) == 2


async def test_cancel_absorbs(box: Rig) -> None:
    job_id = await box.submit(2)
    assert await box.ledger.cancel(job_id, "operator") == (True, "canceled")
    assert await box.ledger.cancel(job_id, "operator") == (False, "canceled")
    assert await box.events(job_id) == ["queued", "canceled"]
    assert await box.ledger.ended_before(FOREVER, 10) == [job_id]
    with pytest.raises(FetchboxError, match="NOT_FOUND"):
        await box.ledger.cancel("none", "operator")
    assert not await box.redis.exists(keys.job("none"))


@pytest.mark.fault(60)
async def test_pages_are_newest_first_and_skip_what_is_gone(box: Rig) -> None:
    jobs = [await box.submit(1) for _ in range(7)]
    await box.redis.delete(keys.job(jobs[3]))
    seen: list[str] = []
    cursor = ""
    while True:
        records, cursor = await box.ledger.page(2, cursor)
        assert len(records) <= 2
        seen += [record.job_id for record in records]
        if not cursor:
            break
    rest = [job for job in jobs if job != jobs[3]]
    assert sorted(seen) == sorted(rest)
    created = [record.created_ms for record in await box.ledger.get_many(seen) if record]
    assert created == sorted(created, reverse=True)
    assert [record.job_id async for record in box.ledger.all()].sort() == rest.sort()


async def test_pages_keep_their_place_within_one_millisecond(box: Rig) -> None:
    jobs = {f"job-{number:03}" for number in range(50)}
    for job_id in jobs:
        await box.ledger.accept(JobRecord(job_id=job_id, job_type="default"))
        await box.redis.zadd(keys.job_index(), {job_id: 1000})
    seen: list[str] = []
    cursor = ""
    while True:
        records, cursor = await box.ledger.page(7, cursor)
        seen += [record.job_id for record in records]
        if not cursor:
            break
    assert len(seen) == 50
    assert set(seen) == jobs
    assert {record.job_id async for record in box.ledger.all()} == jobs


async def test_pages_filter(box: Rig) -> None:
    jobs = [await box.submit(1) for _ in range(4)]
    await box.ledger.cancel(jobs[1], "me")
    records, _ = await box.ledger.page(10, status="canceled")
    assert [record.job_id for record in records] == [jobs[1]]
    assert await box.ledger.page(10, tenant="nobody") == ([], "")


async def test_delete_spares_open_and_young_jobs(box: Rig) -> None:
    job_id = await box.submit(1)
    assert not await box.ledger.delete(job_id, FOREVER)
    await box.ledger.cancel(job_id, "me")
    record = await box.ledger.get(job_id)
    assert record is not None
    assert not await box.ledger.delete(job_id, record.updated_ms)
    assert await box.ledger.delete(job_id, record.updated_ms + 1)
    assert await box.redis.keys(f"job:{job_id}*") == []
    assert await box.ledger.counts() == (0, 0)


@pytest.mark.parametrize(
    ("word", "state", "operator"),
    [
        ("queued", JobState.JOB_STATE_QUEUED, "queued"),
        ("running", JobState.JOB_STATE_IN_PROGRESS, "in_progress"),
        ("done", JobState.JOB_STATE_COMPLETED, "completed"),
        ("partial", JobState.JOB_STATE_PARTIAL, "partial"),
        ("error", JobState.JOB_STATE_FAILED, "failed"),
        ("canceled", JobState.JOB_STATE_FAILED, "canceled"),
    ],
)
def test_status_words(word: str, state: JobState.ValueType, operator: str) -> None:
    assert job_state(word) == state
    assert operator_status(word) == operator
    status = job_status(JobRecord(job_id="a", status=word, revision=7))
    assert (status.state, status.revision) == (state, 7)


# The mirror.


def _said(
    state: JobState.ValueType, completed: int, failed: int = 0, *, total: int = 0, revision: int = 0
) -> JobStatus:
    return JobStatus(
        job_id="direct",
        job_type="default",
        state=state,
        resources_total=total,
        resources_completed=completed,
        resources_failed=failed,
        revision=revision,
    )


RUNNING, COMPLETED = JobState.JOB_STATE_IN_PROGRESS, JobState.JOB_STATE_COMPLETED


@pytest.mark.req("R000-4.13", "R001-6.02")
async def test_the_mirror_follows_a_direct_producer(box: Rig) -> None:
    mirror = box.ledger.mirror
    assert await mirror(_said(JobState.JOB_STATE_QUEUED, 0, total=3))
    assert await mirror(_said(RUNNING, 1, total=3))
    assert not await mirror(_said(RUNNING, 1, total=3))
    assert not await mirror(_said(RUNNING, 0, total=3)), "counts only rise"
    assert await mirror(_said(JobState.JOB_STATE_PARTIAL, 2, 1, total=3))
    assert not await mirror(_said(RUNNING, 3, total=3)), "a terminal state absorbs"
    record = await box.ledger.get("direct")
    assert record is not None
    assert (record.status, record.resource_completed, record.resource_failed) == ("partial", 2, 1)
    assert record.direct
    assert await box.events("direct") == ["queued", "running", "done"]
    assert await box.ledger.ended_before(FOREVER, 9) == ["direct"]


@pytest.mark.req("R000-4.10")
async def test_the_mirror_applies_only_higher_revisions(box: Rig) -> None:
    assert await box.ledger.mirror(_said(RUNNING, 2, total=9, revision=5))
    assert not await box.ledger.mirror(_said(RUNNING, 3, total=9, revision=5))
    assert not await box.ledger.mirror(_said(RUNNING, 3, total=9, revision=4))
    assert await box.ledger.mirror(_said(RUNNING, 3, total=9, revision=6))


async def test_the_mirror_leaves_ingested_jobs_alone(box: Rig) -> None:
    job_id = await box.submit(2)
    said = _said(COMPLETED, 2, total=2, revision=99)
    said.job_id = job_id
    assert not await box.ledger.mirror(said)
    assert await _status(box, job_id) == "queued"


@pytest.mark.req("R001-6.02")
@pytest.mark.fault(66)
async def test_a_job_without_a_total_ends_by_its_idle_timeout(box: Rig) -> None:
    await box.ledger.mirror(_said(RUNNING, 2))
    assert await box.ledger.idle(60_000) == []
    assert await box.ledger.idle(0) == ["direct"]
    assert not await box.ledger.close("direct", 60_000), "it had news"
    assert await box.ledger.close("direct", 0)
    assert not await box.ledger.close("direct", 0)
    record = await box.ledger.get("direct")
    assert record is not None
    assert (record.status, record.resource_total) == ("done", 2)
    assert await box.ledger.idle(0) == []


async def test_a_job_of_which_nothing_came_is_closed_as_failed(box: Rig) -> None:
    await box.ledger.mirror(_said(JobState.JOB_STATE_QUEUED, 0))
    assert await box.ledger.close("direct", 0)
    record = await box.ledger.get("direct")
    assert record is not None
    assert (record.status, record.error_code) == ("error", "SYSTEM_EXPIRED")


# The finalization.


async def _due(box: Rig) -> str:
    job_id = await box.submit(1)
    await box.redis.hset(keys.job(job_id), mapping={"fin": "due", "status": "running", "resource_completed": 1})
    await box.redis.zadd(keys.finals(box.lane_of(job_id)), {job_id: 1})
    return job_id


async def test_only_one_finalizes_and_a_dead_one_is_replaced(box: Rig) -> None:
    job_id = await _due(box)
    first = await box.ledger.begin_final(job_id, "w1", 100)
    assert (first.state, first.generation) == ("mine", 1)
    assert (await box.ledger.begin_final(job_id, "w1", 100)).generation == 1, "a renewal"
    held = await box.ledger.begin_final(job_id, "w2", 100)
    assert held.state == "held"
    await asyncio.sleep(held.wait_ms / 1000 + 0.002)  # as long as it says
    second = await box.ledger.begin_final(job_id, "w2", 10_000)
    assert (second.state, second.generation) == ("mine", 2)
    assert await box.ledger.end_final(job_id, "w1", 1, "") == (False, "fenced")
    where = results_key("fetchbox", "default", job_id)
    assert await box.ledger.end_final(job_id, "w2", 2, where) == (True, "done")
    assert await box.ledger.end_final(job_id, "w2", 2, where) == (False, "done")
    record = await box.ledger.get(job_id)
    assert record is not None
    assert record.results_key == where
    assert (await box.ledger.begin_final(job_id, "w3", 100)).state == "nothing"
    assert (await box.events(job_id))[-1] == "done"


async def test_a_failed_finalization_fails_the_job(box: Rig) -> None:
    job_id = await _due(box)
    hold = await box.ledger.begin_final(job_id, "w1", 1000)
    assert await box.ledger.end_final(job_id, "w1", hold.generation, "", ("HANDLER_ERROR", "no")) == (True, "error")
    record = await box.ledger.get(job_id)
    assert record is not None
    assert (record.error_code, record.error_message) == ("HANDLER_ERROR", "no")


async def test_a_cancel_beats_a_finalization(box: Rig) -> None:
    job_id = await _due(box)
    hold = await box.ledger.begin_final(job_id, "w1", 1000)
    await box.ledger.cancel(job_id, "me")
    assert await box.ledger.end_final(job_id, "w1", hold.generation, "") == (False, "canceled")
