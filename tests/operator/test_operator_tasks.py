"""Task jobs as operators see them: beside the jobs of manifests, and never with what they carry."""

import json

import pytest
from task_hand import PAYLOAD

from fetchbox.jobs.jobs_pb2 import JobState, JobStatus
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.ids import uuid7
from kernel.log.topics import Received
from kernel.redis import keys, scripts
from operator_svc.mirror import Mirror
from operator_svc.pruner import Pruner

SECRET = "s3cr3tpayload"


async def listed(operator, **request) -> list:
    return list((await operator.ListJobs(pb.ListJobsRequest(**request))).jobs)


@pytest.mark.req("R004-state.03")
async def test_the_snapshot_of_a_task_job(operator, tasks):
    job_id = await tasks.job("plan", tenant="t")
    job = await operator.GetJob(pb.GetJobRequest(job_id=job_id))
    assert (job.job_id, job.task, job.job_type, job.status, job.tenant) == (job_id, "plan", "plan", "queued", "t")
    assert (job.resource_total, job.resource_completed, job.resource_failed) == (0, 0, 0)
    assert (job.manifest_key, job.results_key, job.trace_id) == ("", "", "a" * 32)
    assert job.log_cursor.offset > 0
    await tasks.start()
    assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).status == "in_progress"


@pytest.mark.req("R004-state.05")
async def test_done_and_failed_task_jobs_have_the_operators_words(operator, tasks):
    done, failed = await tasks.job(), await tasks.job()
    await tasks.work()
    await tasks.work("HANDLER_HTTP_400")
    assert (await operator.GetJob(pb.GetJobRequest(job_id=done))).status == "completed"
    job = await operator.GetJob(pb.GetJobRequest(job_id=failed))
    assert (job.status, job.last_error.code, job.last_error.message) == ("failed", "HANDLER_HTTP_400", "no luck")


async def test_both_kinds_are_listed_and_told_apart(operator, hand, tasks):
    fetch, chat, embed = await hand.job(), await tasks.job(), await tasks.job("embed", tenant="t")
    assert {job.job_id: job.task for job in await listed(operator)} == {fetch: "fetch", chat: "chat", embed: "embed"}
    assert [job.job_id for job in await listed(operator, task="chat")] == [chat]
    assert [job.job_id for job in await listed(operator, task="fetch")] == [fetch]
    assert [job.job_id for job in await listed(operator, job_type="embed", tenant="t")] == [embed]
    assert await listed(operator, task="rag") == []


async def test_a_page_token_belongs_to_its_task(operator, tasks, refused):
    for _ in range(3):
        await tasks.job()
    first = await operator.ListJobs(pb.ListJobsRequest(page_size=2, task="chat"))
    rest = await operator.ListJobs(pb.ListJobsRequest(page_size=2, task="chat", page_token=first.next_page_token))
    assert len(first.jobs) + len(rest.jobs) == 3
    with refused("INVALID_PAYLOAD"):
        await operator.ListJobs(pb.ListJobsRequest(task="plan", page_token=first.next_page_token))


async def test_the_export_has_task_jobs_and_knows_which_have_ended(operator, hand, tasks):
    """Ended task jobs are not in the pruner's index."""
    fetched, opened = await hand.ended(), await hand.job()
    done = await tasks.job()
    await tasks.work()
    queued = await tasks.job()
    everything = [job async for job in operator.ExportJobs(pb.ExportJobsRequest())]
    assert {job.job_id for job in everything} == {fetched, opened, done, queued}
    ended = [job async for job in operator.ExportJobs(pb.ExportJobsRequest(ended_only=True))]
    assert {job.job_id for job in ended} == {fetched, done}


@pytest.mark.req("R004-state.02")
@pytest.mark.fault(60)
async def test_listings_skip_what_has_expired(operator, tasks):
    """queue_faults row 60: a listing that races an expiry leaves the job out."""
    gone, there = await tasks.job(), await tasks.job()
    await tasks.expire(gone)
    assert [job.job_id for job in await listed(operator)] == [there]
    assert [job.job_id async for job in operator.ExportJobs(pb.ExportJobsRequest())] == [there]


async def test_cancel_ends_a_task_job_and_tells_its_status(operator, hand, tasks):
    job_id = await tasks.job()
    entry, task, token = await tasks.start()
    assert (await operator.CancelJob(pb.CancelJobRequest(job_id=job_id))).status == "canceled"
    assert await tasks.settle(entry, task, token) == "c", "the handler's result comes too late"
    assert (await operator.CancelJob(pb.CancelJobRequest(job_id=job_id))).status == "canceled"
    assert 0 < await tasks.redis.ttl(keys.job(job_id)) <= 3600
    told = [r.message for r in await hand.topics.status.read(hand.topics.status.partition_of(job_id))]
    assert {(s.job_type, s.state, s.last_error_code) for s in told} == {
        ("chat", JobState.JOB_STATE_FAILED, "SYSTEM_CANCELED")
    }
    events = [event.type for event in await hand.ledger.events(job_id)]
    assert events.count("canceled") == 1


@pytest.mark.parametrize("error", [b'{"code": 500, "type": "x"}', b'"plain"', b"\xff", b"[1]", b'{"reason": "other"}'])
async def test_a_record_of_another_worker_is_shown_whatever_its_error(operator, tasks, error):
    job_id = await tasks.job()
    await tasks.redis.hset(keys.job(job_id), mapping={"status": "error", "error": error, "updated_ts": "soon"})
    (job,) = await listed(operator)
    assert (job.job_id, job.status) == (job_id, "failed")
    assert job.last_error.code


async def test_payloads_and_results_are_shown_nowhere(operator, hand, tasks):
    """Listings, exports, dead letters and logs carry neither the payload nor the result."""
    job_id, position = await tasks.failed()
    await tasks.redis.hset(keys.job(job_id), "result", json.dumps(SECRET))
    await hand.log(job_id, f"GET http://h/?token={SECRET}", payload_token=SECRET)
    shown = [
        await operator.GetJob(pb.GetJobRequest(job_id=job_id)),
        await operator.ListJobs(pb.ListJobsRequest()),
        await operator.ListDeadLetters(pb.ListDeadLettersRequest()),
        *[job async for job in operator.ExportJobs(pb.ExportJobsRequest())],
        *[line async for line in operator.StreamJobLogs(pb.StreamJobLogsRequest(job_id=job_id))],
        await operator.ReplayDeadLetters(pb.ReplayDeadLettersRequest(positions=[position])),
        *[r.message for r in await hand.topics.status.read(hand.topics.status.partition_of(job_id))],
    ]
    assert len(shown) >= 7
    assert SECRET not in "".join(map(str, shown))
    assert "847458834325543643" not in "".join(map(str, shown))
    assert SECRET.encode() in PAYLOAD, "the test looks for something that is there"


@pytest.mark.fault(61)
async def test_a_status_of_a_task_makes_no_record(hand, tasks, config):
    """queue_faults row 61: the record may have expired by the time the mirror reads, and must not come back."""
    job_id = await tasks.job()
    await tasks.expire(job_id)
    mirror = Mirror(hand.ledger, hand.announcer)
    told = JobStatus(job_id=job_id, job_type="chat", state=JobState.JOB_STATE_COMPLETED, revision=3)
    await mirror.apply(Received(0, "5-0", told, ""))
    assert await tasks.record(job_id) == {}
    direct = JobStatus(job_id=uuid7(), job_type="chat", state=JobState.JOB_STATE_COMPLETED, resources_total=2)
    await mirror.apply(Received(0, "6-0", direct, ""))
    assert (await tasks.record(direct.job_id))["task"] == "fetch", "a job type may have the name of a task"


async def test_the_pruner_leaves_task_jobs_alone(hand, tasks, config):
    """Retention and the size cap are about jobs of manifests."""
    fetched = await hand.ended()
    ended = await tasks.job()
    await tasks.work()
    await tasks.redis.hset(keys.job(ended), "updated_ts", 1)
    pruner = Pruner(hand.ledger, hand.announcer, hand.clients, config)
    assert await pruner.size() == await hand.ledger.size(fetched)
    assert await hand.ledger.counts() == (2, 1)
    config.ledger.max_bytes = 1
    config.ledger.retention.FromMilliseconds(1)
    config.ledger.idle_timeout.FromMilliseconds(1)
    await hand.clients.call(scripts.INDEX, [keys.ended_index()], ["CH", 5, fetched])
    await tasks.redis.hset(keys.job(fetched), "updated_ts", 5)
    await Pruner(hand.ledger, hand.announcer, hand.clients, config).run()
    assert {record.job_id async for record in hand.ledger.all()} == {ended}
