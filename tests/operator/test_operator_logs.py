"""StreamJobLogs: replayed from the ledger's cursor or an offset, filtered by job, live with `follow`."""

import asyncio

import pytest

from fetchbox.jobs.jobs_pb2 import JobLog, JobState, JobStatus, LogLevel
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.redis import keys


async def lines(operator, job_id: str, **request) -> list:
    return [entry async for entry in operator.StreamJobLogs(pb.StreamJobLogsRequest(job_id=job_id, **request))]


def same_partition(hand, job_id: str) -> str:
    """Another job id in the same partition of `jobs.logs`."""
    partition = hand.topics.logs.partition_of(job_id)
    return next(f"n{i}" for i in range(1000) if hand.topics.logs.partition_of(f"n{i}") == partition)


@pytest.mark.req("R001-2.15", "R001-2.17", "R000-4.11")
async def test_the_whole_log_is_replayed_from_the_stored_cursor(operator, hand):
    job_id = await hand.job()
    neighbour = same_partition(hand, job_id)
    for number in range(700):
        if number % 7 == 0:
            await hand.log(neighbour, f"theirs {number}")
        await hand.log(job_id, f"line {number}", level=LogLevel.LOG_LEVEL_WARN, attempt="1")
    found = await lines(operator, job_id)
    assert [entry.message for entry in found] == [f"line {n}" for n in range(700)]
    first = found[0]
    assert (first.job_id, first.resource_id, first.level, first.event) == (job_id, "r1", "warn", "log")
    assert dict(first.fields) == {"attempt": "1"}
    assert first.time.ToMilliseconds() == 1_700_000_000_123
    offsets = [entry.offset for entry in found]
    assert offsets == sorted(set(offsets))
    assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).log_cursor.offset < offsets[0]


@pytest.mark.req("R001-2.16")
async def test_since_offset_is_exclusive(operator, hand):
    job_id = await hand.job()
    await hand.log(job_id, "a", "b", "c")
    found = await lines(operator, job_id)
    for index, entry in enumerate(found):
        rest = await lines(operator, job_id, since_offset=entry.offset)
        assert [line.message for line in rest] == ["a", "b", "c"][index + 1 :]
    assert [line.message for line in await lines(operator, job_id, since_offset=0)] == ["a", "b", "c"]
    assert await lines(operator, job_id, since_offset=2**64 - 1) == []


async def test_follow_goes_on_until_the_last_lines_after_the_end(operator, hand):
    job_id = await hand.job(1)
    await hand.log(job_id, "before")
    following = asyncio.create_task(lines(operator, job_id, follow=True))
    for number in range(20):
        await asyncio.sleep(0.01)
        await hand.log(job_id, f"live {number}")
    await asyncio.sleep(1.5)  # in which a follower that gives up would end
    assert not following.done(), "the job has not ended"
    await hand.settle(job_id, 1)
    await asyncio.sleep(0.3)  # a line may come so late
    await hand.log(job_id, "after the end")
    found = await asyncio.wait_for(following, 10)
    assert [line.message for line in found] == ["before", *(f"live {n}" for n in range(20)), "after the end"]


async def test_the_log_of_a_direct_producers_job(operator, hand):
    """Its lines come before the first status, which makes the record."""
    await hand.log("direct-1", "early")
    await hand.ledger.get("direct-1")
    await hand.topics.status.publish(JobStatus(job_id="direct-1", state=JobState.JOB_STATE_IN_PROGRESS, revision=1))
    await until_recorded(hand, "direct-1")
    await hand.log("direct-1", "late")
    assert [line.message for line in await lines(operator, "direct-1")] == ["early", "late"]


async def until_recorded(hand, job_id: str) -> None:
    for _ in range(200):
        if await hand.ledger.get(job_id):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the mirror made no record of {job_id}")


async def test_undecodable_entries_are_passed_over(operator, hand):
    job_id = await hand.job(1)
    stream = keys.stream(keys.LOGS, hand.topics.logs.partition_of(job_id))
    await hand.log(job_id, "a")
    for _ in range(1200):
        await hand.clients.commands.xadd(stream, {"payload": b"\xff\xff\xff"})
    await hand.clients.commands.xadd(stream, {"else": b""})
    await hand.log(job_id, "b")
    assert [line.message for line in await lines(operator, job_id)] == ["a", "b"]
    following = asyncio.create_task(lines(operator, job_id, follow=True))
    await asyncio.sleep(0.5)  # until it follows
    await hand.clients.commands.xadd(stream, {"payload": b"\xff\xff\xff"})
    await hand.log(job_id, "c")
    await hand.settle(job_id, 1)
    assert [line.message for line in await asyncio.wait_for(following, 10)] == ["a", "b", "c"]


async def test_secrets_in_lines_are_hidden(operator, hand):
    job_id = await hand.job()
    await hand.log(job_id, "GET https://h/?X-Amz-Signature=feed", authorization="Bearer feed", url="https://u:feed@h")
    (line,) = await lines(operator, job_id)
    assert "feed" not in str(line)


@pytest.mark.req("R000-1.20")
async def test_another_consumer_reads_beside_the_tailer(service, hand):
    other = hand.topics.logs.group("observability", "one")
    job_id = await hand.job()
    await hand.log(job_id, *(f"{n}" for n in range(50)))
    assert isinstance(JobLog(), JobLog)
    read: list[str] = []
    for _ in range(100):
        batch = await other.read(10, 0.1)
        read += [received.message.message for received in batch]
        await other.ack(batch)
        if len(read) >= 50:
            break
    assert read == [f"{n}" for n in range(50)]
