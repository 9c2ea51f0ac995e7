"""Dead letters of task jobs: listed, replayed once for each number, purged; and what a crash leaves is finished."""

import asyncio
import base64
import json
import signal
import sys

import pytest
from task_hand import PARENT, PAYLOAD

from fetchbox.jobs.jobs_pb2 import DeadLetterTask, JobState
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.redis import keys


async def listed(operator, **request) -> list:
    return list((await operator.ListDeadLetters(pb.ListDeadLettersRequest(**request))).dead_letters)


async def replayed(operator, *positions: str, **request) -> list[tuple[str, int]]:
    answer = await operator.ReplayDeadLetters(pb.ReplayDeadLettersRequest(positions=positions, **request))
    return [(outcome.outcome, outcome.replay) for outcome in answer.outcomes]


async def events(tasks, job_id: str) -> list[tuple[str, str]]:
    found = await tasks.redis.xrange(keys.job_events(job_id))
    return [(fields[b"type"].decode(), fields[b"data"].decode()) for _, fields in found]


async def test_the_letter_of_a_task_is_listed_with_its_task_and_no_url(operator, hand, tasks):
    job_id, position = await tasks.failed("rag", tenant="t")
    await hand.letter("other")
    (letter,) = await listed(operator, job_id=job_id)
    assert (letter.id, letter.position, letter.job_id) == (f"{job_id}//0", position, job_id)
    assert (letter.task, letter.job_type, letter.url, letter.resource_id) == ("rag", "rag", "", "")
    assert (letter.failure_code, letter.attempts, letter.replay) == ("HANDLER_HTTP_400", 1, 0)
    assert letter.failed_at.seconds > 0
    assert "s3cr3t" not in str(letter)
    assert [found.task for found in await listed(operator, failure_code="HANDLER_HTTP_400")] == ["rag"]
    assert len(await listed(operator)) == 2


@pytest.mark.req("R004-queue.02", "R004-state.08", "R004-state.02")
@pytest.mark.fault(31)
async def test_a_replay_opens_the_job_and_queues_its_task_again(operator, hand, tasks):
    """queue_faults row 31: the payload comes from the letter, byte for byte."""
    job_id, position = await tasks.failed()
    before = await tasks.record(job_id)
    assert await tasks.redis.ttl(keys.job(job_id)) > 0
    assert await replayed(operator, position) == [("replayed", 1)]
    record = await tasks.record(job_id)
    assert (record["status"], record["error"], record["result"], record["replays"]) == ("queued", "", "", "1")
    assert record["fence"] == str(1 << 20)
    assert int(record["rev"]) == int(before["rev"]) + 1
    for name in (keys.job(job_id), keys.job_events(job_id)):
        assert await tasks.redis.ttl(name) == -1, "nothing expires under a live job"
    assert (await events(tasks, job_id))[-1] == ("replayed", '{"replay":1}')
    expected = {"job_id": job_id, "task": "chat", "payload": PAYLOAD.decode(), "ledger": "1", "replay": "1"}
    assert await tasks.entries() == [expected | {"traceparent": PARENT}]
    assert await tasks.open() == {"chat": 1}
    told = [r.message.state for r in await hand.topics.status.read(hand.topics.status.partition_of(job_id))]
    assert told[-1] == JobState.JOB_STATE_QUEUED


async def test_the_replayed_task_runs_and_ends_the_job_once(operator, tasks):
    job_id, position = await tasks.failed()
    assert await replayed(operator, position) == [("replayed", 1)]
    assert await tasks.work() == job_id
    assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).status == "completed"
    kinds = [kind for kind, _ in await events(tasks, job_id)]
    assert kinds == ["queued", "running", "error", "replayed", "running", "done"]
    assert await tasks.entries() == []
    assert await tasks.open() == {}
    assert await replayed(operator, position) == [("already_replayed", 1)]
    assert await tasks.entries() == []


async def test_no_earlier_attempt_settles_or_runs_a_replayed_job(operator, tasks):
    """The worker died between its settlement and its acknowledgement, so the entry comes again."""
    job_id = await tasks.job()
    entry, task, token = await tasks.start()
    assert await tasks.settle("0-1", task, token, "HANDLER_HTTP_400") == "n"
    (letter,) = await listed(operator)
    assert await replayed(operator, letter.position) == [("replayed", 1)]
    assert await tasks.settle("0-1", task, token) == "x"
    await tasks.redis.execute_command("XGROUP", "SETID", keys.QUEUE, keys.GROUP_WORKERS, "0")
    again, _, refused = await tasks.start()
    assert (again, refused) == (entry, 0), "its own replay has overtaken it"
    await tasks.acknowledge(entry, "chat")
    assert await tasks.work() == job_id
    assert [kind for kind, _ in await events(tasks, job_id)].count("running") == 2


async def test_two_replays_at_once_queue_one_task(operator, tasks):
    job_id, position = await tasks.failed()
    answers = await asyncio.gather(*(replayed(operator, position) for _ in range(20)))
    assert sorted(answer[0][0] for answer in answers) == ["already_replayed"] * 19 + ["replayed"]
    assert await replayed(operator, job_id=job_id) == [("already_replayed", 1)]
    assert len(await tasks.entries()) == 1
    assert await tasks.open() == {"chat": 1}


@pytest.mark.fault(25)
async def test_history_is_kept_and_the_cap_holds_unless_forced(operator, tasks):
    """queue_faults row 25: a replay keeps its number, is capped, and can be forced."""
    job_id, position = await tasks.failed()
    for number in range(1, 4):
        assert await replayed(operator, position) == [("replayed", number)]
        assert await tasks.work("HANDLER_HTTP_400") == job_id
        position = (await listed(operator))[0].position
    assert await replayed(operator, position) == [("too_many_replays", 3)]
    assert await replayed(operator, job_id=job_id) == [("too_many_replays", 3)] + [("already_replayed", 3)] * 3
    assert await tasks.entries() == []
    assert await replayed(operator, position, force=True) == [("replayed", 4)]
    assert [letter.replay for letter in await listed(operator)] == [3, 2, 1, 0]


async def test_what_cannot_be_replayed_is_told(operator, tasks):
    canceled, running = await tasks.job(), await tasks.job()
    await operator.CancelJob(pb.CancelJobRequest(job_id=canceled))
    letters = [await tasks.letter(canceled), await tasks.letter(running)]
    assert await replayed(operator, *letters) == [("canceled", 0), ("not_failed", 0)]
    assert len(await tasks.entries()) == 1


async def test_only_a_flow_makes_another_attempt_at_its_step(operator, tasks):
    job_id = await tasks.job("step", flow="run-1 resize 1")
    position = await tasks.letter(job_id, task="step", code="SYSTEM_CRASH_LOOP", flow="run-1 resize 1")
    assert await replayed(operator, position, force=True) == [("of_flow", 0)]
    assert len(await tasks.entries()) == 1


async def test_an_operator_sees_which_step_a_job_is_an_attempt_at(operator, tasks):
    job_id, other = await tasks.job("step", flow="run-1 resize 1"), await tasks.job()
    job = await operator.GetJob(pb.GetJobRequest(job_id=job_id))
    assert (job.task, job.job_type, job.flow) == ("step", "step", "run-1 resize 1")
    assert not (await operator.GetJob(pb.GetJobRequest(job_id=other))).HasField("flow")
    listed_jobs = (await operator.ListJobs(pb.ListJobsRequest(task="step"))).jobs
    assert [(one.job_id, one.flow) for one in listed_jobs] == [(job_id, "run-1 resize 1")]


async def test_a_letter_is_replayed_after_its_record_has_expired(operator, hand, tasks):
    """The record lives for an hour, the letter for three months."""
    job_id, position = await tasks.failed(tenant="t", ttl_s=77)
    before = await hand.ledger.get(job_id)
    await tasks.expire(job_id)
    for index in (keys.job_index(), keys.expiring_index()):
        await tasks.redis.zrem(index, job_id)
    letter = await tasks.letter(job_id, tenant="t", ttl_s=77)
    assert await replayed(operator, letter) == [("replayed", 1)]
    record = await tasks.record(job_id)
    assert {name: record[name] for name in ("job_id", "task", "payload", "ttl_s", "tenant", "trace_id", "status")} == {
        "job_id": job_id, "task": "chat", "payload": PAYLOAD.decode(), "ttl_s": "77", "tenant": "t",
        "trace_id": "a" * 32, "status": "queued",
    }  # fmt: skip
    assert (record["result"], record["error"]) == ("", "")
    assert int(record["created_ts"]) > 0
    assert int(record["rev"]) > before.revision, "readers of jobs.status apply only a higher revision"
    assert [job.job_id for job in (await operator.ListJobs(pb.ListJobsRequest(task="chat"))).jobs] == [job_id]
    assert await tasks.redis.zscore(keys.expiring_index(), job_id) > 0
    assert await replayed(operator, position) == [("already_replayed", 1)]
    assert await tasks.work() == job_id
    assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).status == "completed"


async def test_a_letter_that_was_replayed_before_its_record_expired_is_not_replayed_again(operator, tasks):
    job_id, position = await tasks.failed()
    assert await replayed(operator, position) == [("replayed", 1)]
    await tasks.work("HANDLER_HTTP_400")
    await tasks.expire(job_id)
    second = (await listed(operator))[0].position
    assert await replayed(operator, position) == [("already_replayed", 1)]
    assert await tasks.record(job_id) == {}
    assert await replayed(operator, second) == [("replayed", 2)]
    assert [entry["replay"] for entry in await tasks.entries()] == ["2"]
    assert (await tasks.record(job_id))["fence"] == str(2 << 20)


async def test_the_cap_holds_for_records_that_are_gone(operator, tasks):
    position = await tasks.letter("gone", replay=3)
    assert await replayed(operator, position) == [("too_many_replays", 3)]
    assert await tasks.record("gone") == {}
    assert await replayed(operator, position, force=True) == [("replayed", 4)]


async def test_a_replay_does_not_ask_for_room(operator, tasks, config):
    config.tasks.max_backlog = 1
    _, position = await tasks.failed()
    await tasks.job()
    assert await replayed(operator, position) == [("replayed", 1)]
    assert len(await tasks.entries()) == 2


@pytest.mark.parametrize("expired", [False, True])
async def test_a_process_that_is_killed_between_the_steps_leaves_a_replay_to_finish(operator, tasks, config, expired):
    job_id, position = await tasks.failed()
    if expired:
        await tasks.expire(job_id)
    command = (sys.executable, "-m", "tests.operator.dying_replay", config.redis.addr, position)
    process = await asyncio.create_subprocess_exec(*command)
    assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
    assert (await tasks.record(job_id))["status"] == "queued"
    assert await tasks.entries() == []
    assert await replayed(operator, position) == [("replayed", 1)]
    assert await replayed(operator, position) == [("already_replayed", 1)]
    assert [entry["replay"] for entry in await tasks.entries()] == ["1"]
    assert await tasks.open() == {"chat": 1}
    assert await tasks.work() == job_id


FIELDS = [b"job_id", b"\xff\xfe", b"x", b"", b"x", b"twice", b"payload", bytes(range(256))]


def undecodable(*fields: bytes) -> bytes:
    return json.dumps([base64.b64encode(part).decode() for part in fields]).encode()


@pytest.mark.fault(29)
async def test_an_undecodable_entry_goes_back_with_the_same_fields(operator, hand, tasks):
    """queue_faults row 29: field by field, in their order, also where a name comes twice."""
    letter = DeadLetterTask(failure_code="VALIDATION_UNDECODABLE", undecodable=undecodable(*FIELDS), failed_at_ms=5)
    letter.id = f"{keys.QUEUE}/5-0"
    await hand.topics.dlq.publish(letter, key="x")
    (shown,) = await listed(operator)
    assert (shown.id, shown.job_id, shown.task) == ("jobs:stream/5-0", "", "")
    assert await replayed(operator, shown.position) == [("replayed", 1)]
    assert await replayed(operator, shown.position) == [("already_replayed", 1)]
    raw = await tasks.redis.execute_command("EVAL", "return redis.call('XRANGE', KEYS[1], '-', '+')", 1, keys.QUEUE)
    assert [fields for _, fields in raw] == [FIELDS]
    assert await tasks.open() == {}


@pytest.mark.parametrize(
    "bad", [b"", b"{}", b"[]", b'["eA=="]', b'["eA==", 5]', b'["eA==", "%"]', b"\xff", b"5", undecodable(b"x")]
)
async def test_a_letter_without_fields_puts_nothing_back(operator, hand, tasks, bad):
    letter = DeadLetterTask(failure_code="VALIDATION_UNDECODABLE", undecodable=bad, id=f"{keys.QUEUE}/5-0")
    await hand.topics.dlq.publish(letter, key="x")
    (shown,) = await listed(operator)
    assert [word for word, _ in await replayed(operator, shown.position)] == ["not_found"]
    assert await tasks.entries() == []


@pytest.mark.req("R000-3.07")
async def test_letters_of_tasks_are_purged(operator, tasks):
    job_id, _ = await tasks.failed()
    other, position = await tasks.failed()
    answer = await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest(job_id=job_id))
    assert (answer.purged, answer.remaining) == (1, False)
    assert [letter.job_id for letter in await listed(operator)] == [other]
    assert (await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest(positions=[position]))).purged == 1
    assert await listed(operator) == []
