"""The status mirror and the log tailer: group `operators`, at least once, in any order."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.jobs.jobs_pb2 import JobState, JobStatus, LogLevel
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.ids import uuid7
from kernel.log.topics import Received
from kernel.redis import keys
from kernel.telemetry import metrics
from operator_svc.bootstrap import build
from operator_svc.mirror import Mirror
from tests.examples import most

RUNNING, DONE, PARTIAL, FAILED = (
    JobState.JOB_STATE_IN_PROGRESS,
    JobState.JOB_STATE_COMPLETED,
    JobState.JOB_STATE_PARTIAL,
    JobState.JOB_STATE_FAILED,
)


def status(job_id: str, revision: int, state=RUNNING, completed: int = 0, failed: int = 0, **facts) -> JobStatus:
    return JobStatus(
        job_id=job_id, job_type="default", state=state, revision=revision, resources_total=10,
        resources_completed=completed, resources_failed=failed, **facts
    )  # fmt: skip


async def until(condition, what: str):
    for _ in range(200):
        if found := await condition():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"never {what}")


@pytest.mark.req("R000-1.18", "R000-4.10", "R000-4.13", "R001-6.02", "R001-5.04")
async def test_a_direct_producers_statuses_make_and_move_its_record(operator, hand):
    job_id = uuid7()
    await hand.topics.status.publish(status(job_id, 1, tenant="t", manifest_key="s3://theirs/m.json"))
    await until(lambda: hand.ledger.get(job_id), "mirrored")
    job = await operator.GetJob(pb.GetJobRequest(job_id=job_id))
    assert (job.status, job.resource_total, job.tenant, job.manifest_key) == (
        "in_progress",
        10,
        "t",
        "s3://theirs/m.json",
    )
    end = status(job_id, 5, PARTIAL, 9, 1, last_error_code="DOWNLOAD_HTTP_403", last_error_message="no")
    await hand.topics.status.publish(end)

    async def has_ended():
        return (await hand.ledger.get(job_id)).status == "partial"

    await until(has_ended, "ended")
    job = await operator.GetJob(pb.GetJobRequest(job_id=job_id))
    assert (job.status, job.resource_completed, job.resource_failed, job.last_error.code) == (
        "partial",
        9,
        1,
        "HTTP_403",
    )
    events = [event.type async for event in operator.WatchJob(pb.WatchJobRequest(job_id=job_id))]
    assert (events[:2], events[-1]) == (["hello", "queued"], "done")
    assert job_id in [job.job_id for job in (await operator.ListJobs(pb.ListJobsRequest())).jobs]


@settings(max_examples=most(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_order_with_repetitions_ends_in_the_highest_revision(hand, data):
    """Revisions of one job, the last of them terminal, come shuffled and more than once."""
    job_id = uuid7()
    steps = data.draw(st.integers(2, 6))
    counts = sorted(data.draw(st.lists(st.integers(0, 9), min_size=steps, max_size=steps)))
    statuses = [status(job_id, n + 1, RUNNING, count) for n, count in enumerate(counts)]
    statuses.append(status(job_id, steps + 1, data.draw(st.sampled_from([DONE, PARTIAL, FAILED])), 10))
    order = data.draw(st.permutations(statuses * 2))
    mirror = Mirror(hand.ledger, hand.announcer)
    for number, message in enumerate(order):
        copy = JobStatus()
        copy.CopyFrom(message)
        await mirror.apply(Received(0, f"{number + 1}-0", copy))
    record = await hand.ledger.get(job_id)
    assert record.revision == steps + 1
    assert record.status == {DONE: "done", PARTIAL: "partial", FAILED: "error"}[statuses[-1].state]
    assert record.resource_completed == 10
    ends = [event.type for event in await hand.ledger.events(job_id) if event.type in {"done", "error"}]
    assert len(ends) == 1


async def test_our_own_jobs_are_not_touched(service, hand):
    job_id = await hand.job(2)
    before = await hand.ledger.get(job_id)
    mirror = Mirror(hand.ledger, hand.announcer)
    await mirror.apply(Received(0, "1-0", status(job_id, 99, DONE, 2)))
    assert await hand.ledger.get(job_id) == before


async def test_a_job_id_that_is_no_key_is_refused(service, hand):
    counted = metrics.MIRRORED.labels("refused")._value.get()
    for bad in ("", "a b", "../x", "x" * 129, "a:events"):
        await hand.topics.status.publish(status(bad, 1), key="k")
    good = uuid7()
    await hand.topics.status.publish(status(good, 1))
    await until(lambda: hand.ledger.get(good), "mirrored")
    await until(_counted("refused", counted + 5), "counted")
    assert len(await hand.clients.commands.keys("job:*")) == 2


def _counted(outcome: str, wanted: float):
    async def reached() -> bool:
        return metrics.MIRRORED.labels(outcome)._value.get() >= wanted

    return reached


async def pending(hand, topic: str, partitions: int) -> tuple[int, int]:
    """Unacknowledged and unread entries of the group."""
    totals = [0, 0]
    for partition in range(partitions):
        (group,) = await hand.clients.commands.xinfo_groups(keys.stream(topic, partition))
        totals[0] += group["pending"]
        totals[1] += group["lag"] or 0
    return totals[0], totals[1]


@pytest.mark.req("R000-1.14", "R000-1.15", "R000-1.19")
async def test_positions_are_kept_over_a_restart_and_bad_entries_are_passed(config, resources, hand):
    first = await build(config, resources)
    await first.start()
    ids = [uuid7() for _ in range(20)]
    for job_id in ids:
        await hand.topics.status.publish(status(job_id, 1))
        await hand.clients.commands.xadd(keys.stream(keys.STATUS, 0), {"payload": b"\xff\xff"})
        await hand.log(job_id, "line", level=LogLevel.LOG_LEVEL_ERROR)
    await until(lambda: hand.ledger.get(ids[-1]), "mirrored")
    await first.stop()
    late = uuid7()
    await hand.topics.status.publish(status(late, 1))
    counted = metrics.JOB_LOG_LINES.labels("error")._value.get()
    await hand.log(late, "line", level=LogLevel.LOG_LEVEL_ERROR)
    second = await build(config, resources)
    await second.start()
    await until(lambda: hand.ledger.get(late), "mirrored")

    async def settled() -> bool:
        status_left = await pending(hand, keys.STATUS, 4)
        return status_left == (0, 0) and await pending(hand, keys.LOGS, 4) == (0, 0)

    await until(settled, "acknowledged")
    assert metrics.JOB_LOG_LINES.labels("error")._value.get() - counted <= 21
    await second.stop()
    assert all(await hand.ledger.get_many(ids))


async def test_a_status_that_was_read_but_not_acknowledged_is_applied_again(config, resources, hand):
    """As when a process dies between the two: another consumer of the group holds the entry, and is gone."""
    job_id = uuid7()
    await hand.topics.status.publish(status(job_id, 1))
    consumer = f"operator-{config.operator.listen}"
    group = hand.topics.status.group(keys.GROUP_OPERATORS, consumer)
    assert [received.message.job_id for received in await group.read(10, 0.1)] == [job_id]
    assert await hand.ledger.get(job_id) is None
    running = await build(config, resources)
    await running.start()
    await until(lambda: hand.ledger.get(job_id), "mirrored")
    await running.stop()


@pytest.mark.fault(35)
async def test_a_lost_stream_and_group_heal(service, hand):
    await hand.clients.commands.execute_command("FLUSHALL")
    job_id = uuid7()
    await hand.topics.status.publish(status(job_id, 1))
    await until(lambda: hand.ledger.get(job_id), "mirrored")


async def test_the_status_of_an_expired_attempt_at_a_step_makes_no_record(hand):
    mirror = Mirror(hand.ledger, hand.announcer)
    told = JobStatus(job_id=uuid7(), job_type="step", state=DONE, revision=3)
    await mirror.apply(Received(0, "1-1", told))
    assert await hand.ledger.get(told.job_id) is None
