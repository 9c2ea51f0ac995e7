"""Dead letters as the lane itself writes them, replayed and run by the lane again."""

from collections.abc import AsyncIterator

import pytest
from task_hand import PAYLOAD

from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.queue.streams.stream import Failure, StreamLane, Success
from kernel.redis import keys
from tests.kernel.lane_rig import Rig, until

FINAL = Failure("HANDLER_HTTP_400", "never")


@pytest.fixture
async def box(tasks, config) -> AsyncIterator[Rig]:
    rig = Rig(config, tasks.clients)
    yield rig
    for lane in list(rig.lanes):
        await lane.stop()


async def letters(operator) -> list:
    return list((await operator.ListDeadLetters(pb.ListDeadLettersRequest())).dead_letters)


async def replayed(operator, position: str, **request) -> tuple[str, int]:
    answer = await operator.ReplayDeadLetters(pb.ReplayDeadLettersRequest(positions=[position], **request))
    return answer.outcomes[0].outcome, answer.outcomes[0].replay


async def failed(box: Rig, lane: StreamLane, job_id: str) -> None:
    (claim,) = await box.claim(lane, 1)
    assert claim.job_id == job_id
    assert (await lane.settle(claim, FINAL)).outcome == "failed"


@pytest.mark.req("R004-events.08", "R004-worker.09", "R004-worker.10")
@pytest.mark.parametrize("expired", [False, True])
async def test_a_replayed_task_is_claimed_with_all_its_attempts_before_it(operator, tasks, box, expired):
    job_id = await tasks.job("plan", tenant="t")
    lane = await box.lane()
    await failed(box, lane, job_id)
    (letter,) = await letters(operator)
    assert (letter.id, letter.task, letter.tenant, letter.failure_code) == (f"{job_id}//0", "plan", "t", FINAL.code)
    if expired:
        await tasks.expire(job_id)
    assert await replayed(operator, letter.position) == ("replayed", 1)
    (claim,) = await box.claim(lane, 1)
    assert (claim.job_id, claim.attempt, claim.token > 1 << 20) == (job_id, 0, True)
    assert claim.queued is not None
    assert (claim.queued.payload, claim.queued.tenant, claim.queued.ttl_s) == (PAYLOAD, "t", 3600)
    assert (await lane.settle(claim, Success(result=b"{}"))).outcome == "completed"
    job = await operator.GetJob(pb.GetJobRequest(job_id=job_id))
    assert (job.status, job.HasField("last_error")) == ("completed", False)
    await until(lambda: tasks.redis.xlen(keys.QUEUE), lambda length: length == 0)
    assert await tasks.open() == {}
    assert 0 < await tasks.redis.ttl(keys.job(job_id)) <= 3600
    assert len(await letters(operator)) == 1


@pytest.mark.fault(25)
async def test_each_failure_has_a_letter_with_the_number_of_its_replay(operator, tasks, box):
    """queue_faults row 25: the history of a task is in its letters."""
    job_id = await tasks.job()
    lane = await box.lane()
    await failed(box, lane, job_id)
    for number in range(1, 4):
        assert await replayed(operator, (await letters(operator))[0].position) == ("replayed", number)
        await failed(box, lane, job_id)
    assert [letter.id for letter in await letters(operator)] == [f"{job_id}//{n}" for n in (3, 2, 1, 0)]
    assert await replayed(operator, (await letters(operator))[0].position) == ("too_many_replays", 3)


@pytest.mark.fault(29)
async def test_what_the_lane_cannot_read_goes_back_as_it_was(operator, tasks, box):
    """queue_faults row 29."""
    fields = {b"job_id": b"../x", b"task": b"\xff", b"payload": bytes(range(256)), b"": b""}
    await tasks.redis.xadd(keys.QUEUE, fields)
    lane = await box.lane()
    await box.nothing(lane)
    (letter,) = await until(lambda: letters(operator), bool)
    assert (letter.failure_code, letter.id.partition("/")[0]) == ("VALIDATION_UNDECODABLE", keys.QUEUE)
    await until(lambda: tasks.redis.xlen(keys.QUEUE), lambda length: length == 0)
    await lane.stop()
    box.lanes.remove(lane)
    assert await replayed(operator, letter.position) == ("replayed", 1)
    assert [found for _, found in await tasks.redis.xrange(keys.QUEUE)] == [fields]
