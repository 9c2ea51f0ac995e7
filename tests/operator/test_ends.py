"""One path for the end of a job: whoever ends it, its last status and its lines are published, or the sweep does so."""

from __future__ import annotations

from fetchbox.jobs.jobs_pb2 import DeadLetterTask, JobLog, JobState, JobStatus
from kernel.ids import uuid7
from kernel.log.topics import Topic
from kernel.queue.announcements import Announcer
from kernel.redis import keys
from operator_svc.state_indexes import StateIndexes

_STATES = {"done": "COMPLETED", "partial": "PARTIAL", "error": "FAILED", "canceled": "FAILED"}


async def _all(topic: Topic) -> list:
    return [one.message for part in range(topic.partitions) for one in await topic.read(part, limit=10_000)]


async def _last_statuses(topics) -> dict[str, JobStatus]:
    last: dict[str, JobStatus] = {}
    for status in await _all(topics.status):
        if status.job_id not in last or status.revision > last[status.job_id].revision:
            last[status.job_id] = status
    return last


async def _age_notes(clients) -> None:
    """The notes become old enough for the sweep: their publishers have died."""
    for job_id, at in await clients.commands.zrange(keys.UNPUBLISHED, 0, -1, withscores=True):
        await clients.commands.zadd(keys.UNPUBLISHED, {job_id: at - 60_000})


async def _every_kind_of_end(hand, tasks) -> dict[str, str]:
    """Ends jobs in every way, and nobody publishes, as if all callers died then: the status of each."""
    found: dict[str, str] = {}
    for how in ("done", "failed", "canceled", "step", "step canceled", "crashed"):
        job_id = await tasks.job(flow="f1 s1 1" if "step" in how else "")
        if "canceled" in how:
            await hand.ledger.cancel(job_id, "test")
            found[job_id] = "canceled"
            continue
        code = {"failed": "HANDLER_HTTP_400", "crashed": "SYSTEM_CRASH_LOOP"}.get(how, "")
        entry, task, token = await tasks.start()
        await tasks.settle(entry, task, token, code, published=False)
        found[job_id] = "error" if code else "done"
    canceled = await hand.job(2)
    await hand.ledger.cancel(canceled, "test")
    found[canceled] = "canceled"
    idle = uuid7()
    status = JobStatus(job_id=idle, job_type="default", state=JobState.JOB_STATE_IN_PROGRESS, resources_completed=1)
    await hand.ledger.mirror(status)
    assert await hand.ledger.close(idle, 0)
    found[idle] = "done"
    for code in ("", "DOWNLOAD_DNS"):
        final = await hand.job(1)
        await hand.settle_due(final, code)
        hold = await hand.ledger.begin_final(final, "w", 60_000, forget=False)
        _, found[final] = await hand.ledger.end_final(final, "w", hold.generation, "", forget=False)
    return found


async def test_what_no_publisher_got_to_is_published_by_the_sweep(hand, tasks, config):
    ends = await _every_kind_of_end(hand, tasks)
    announcer = Announcer(hand.ledger, hand.topics)
    assert await announcer.sweep() == 0, "a publisher may still be at it"
    await _age_notes(hand.clients)
    await announcer.sweep()
    await StateIndexes(hand.clients, config).run()
    listed, cursor = await hand.ledger.page(500)
    assert not cursor
    assert {record.job_id: record.status for record in listed} == ends
    last = await _last_statuses(hand.topics)
    assert {job_id: JobState.Name(one.state) for job_id, one in last.items()} == {
        job_id: f"JOB_STATE_{_STATES[status]}" for job_id, status in ends.items()
    }
    for record in listed:
        assert last[record.job_id].revision == record.revision
        assert last[record.job_id].last_error_code == record.error_code
    lines: list[JobLog] = await _all(hand.topics.logs)
    of_finalizers = {record.job_id for record in listed if record.task == "fetch" and record.status == "canceled"}
    assert {line.job_id for line in lines} == set(ends) - of_finalizers
    assert of_finalizers <= set(await _finals(hand, config))
    letters: list[DeadLetterTask] = await _all(hand.topics.dlq)
    codes = {letter.failure_code for letter in letters if letter.HasField("queued_task")}
    assert codes == {"HANDLER_HTTP_400", "SYSTEM_CRASH_LOOP"}
    assert await hand.clients.commands.zcard(keys.UNPUBLISHED) == 0
    before = len(await _all(hand.topics.status))
    assert await announcer.sweep() == 0
    assert len(await _all(hand.topics.status)) == before


async def _finals(hand, config) -> list[str]:
    lanes = [keys.stream(keys.TASKS, part) for part in range(config.streams.tasks.partitions)]
    found = [await hand.clients.commands.zrange(keys.finals(lane), 0, -1) for lane in lanes]
    return [job_id.decode() for ids in found for job_id in ids]


async def test_who_ends_a_job_publishes_it_once_and_takes_the_note_back(hand, tasks):
    job_id = await tasks.job(flow="f1 s1 1")
    await hand.ledger.cancel(job_id, "flow.engine")
    for _ in range(2):
        await hand.announcer.announce(job_id)
    assert (await _last_statuses(hand.topics))[job_id].last_error_code == "SYSTEM_CANCELED"
    assert [line.fields["status"] for line in await _all(hand.topics.logs)] == ["canceled"]
    assert await hand.clients.commands.zcard(keys.UNPUBLISHED) == 0


async def test_a_note_of_a_later_end_outlives_the_publication_of_an_earlier_one(hand, tasks):
    job_id = await tasks.job()
    await hand.ledger.cancel(job_id, "test")
    notes = await hand.ledger.notes([job_id])
    await hand.clients.commands.zadd(keys.UNPUBLISHED, {job_id: notes[job_id] + 1})
    await hand.ledger.forget_notes(notes)
    assert await hand.ledger.notes([job_id])
