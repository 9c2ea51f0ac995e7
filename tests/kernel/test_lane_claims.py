"""How tasks are handed out: by the group, once, whoever published them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from lane_rig import Rig, rig, settings, task, until

from fetchbox.jobs.jobs_pb2 import JobState
from kernel import ids
from kernel.queue.streams.stream import StreamLane, Success
from kernel.redis import keys


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


async def _finish(box: Rig, lane: StreamLane, count: int) -> None:
    settled = await box.settle(lane, await box.claim(lane, count), Success())
    assert [one.outcome for one in settled] == ["completed"] * count


async def _job(box: Rig, job_id: str) -> tuple[str, int, int, int]:
    record = await box.ledger.get(job_id)
    assert record is not None
    return record.status, record.resource_completed, record.resource_failed, record.resource_total


@pytest.mark.req("R000-1.17", "R000-1.14")
async def test_the_group_hands_each_task_to_one_worker(box: Rig) -> None:
    job_id = await box.submit(30)
    one, two = await box.lane("w1"), await box.lane("w2")
    claims = [*await one.claim(10, 1), *await two.claim(10, 1), *await one.claim(30, 0.2), *await two.claim(30, 0.2)]
    assert sorted(claim.task.resource_index for claim in claims) == list(range(1, 31))
    assert await box.pending() == 30, "an entry is acknowledged only once it is settled"
    groups = await box.redis.xinfo_groups(box.lane_of(job_id))
    assert [group["name"] for group in groups] == [b"workers"]
    assert (await _job(box, job_id))[0] == "running"


@pytest.mark.req("R000-1.15")
async def test_a_restarted_worker_goes_on_after_what_it_acknowledged(box: Rig) -> None:
    job_id = await box.submit(6)
    lane = await box.lane()
    await _finish(box, lane, 4)
    await lane.stop()
    await lane.stop()
    again = await box.lane()
    await _finish(box, again, 2)
    assert await _job(box, job_id) == ("done", 6, 0, 6)
    assert len(await box.logs()) == 6


async def test_the_lease_exists_before_the_first_claim(box: Rig) -> None:
    lane = await box.lane("early")
    for stream in box.streams:
        assert await box.redis.zscore(keys.lease(stream), "early") is not None
    await lane.stop()
    assert await box.redis.keys("*:lease") == []


async def test_a_canceled_claim_call_loses_nothing(box: Rig) -> None:
    lane = await box.lane()
    call = asyncio.create_task(lane.claim(16, 5))
    await asyncio.sleep(0.05)  # until the call waits at the server
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await box.submit(5)
    assert len(await box.claim(lane, 5)) == 5


@pytest.mark.req("R000-4.12", "R000-4.14", "R001-5.02", "R001-5.04")
async def test_a_direct_producers_task_makes_its_record(box: Rig) -> None:
    job_id = ids.uuid7()
    await box.direct(*(task(job_id, index, 3) for index in (1, 2, 3)))
    lane = await box.lane()
    await _finish(box, lane, 3)
    assert await _job(box, job_id) == ("done", 3, 0, 3)
    assert await box.events(job_id) == ["queued", "running", "done"]
    assert [status.state for status in await box.statuses()] == [JobState.JOB_STATE_COMPLETED]
    records, _ = await box.ledger.page(5)
    assert [(record.job_id, record.direct) for record in records] == [(job_id, True)]


@pytest.mark.req("R001-5.03")
async def test_a_direct_producers_repetitions_are_counted_once(box: Rig) -> None:
    job_id = ids.uuid7()
    same = task(job_id, 1, 2, resource_index=0)
    await box.direct(same, same, task(job_id, 2, 2, resource_index=0), same)
    lane = await box.lane()
    seen = [settled.outcome for settled in await box.settle(lane, await box.claim(lane, 4), Success())]
    assert sorted(seen) == ["completed", "completed", "settled", "settled"]
    await box.settled()
    assert await _job(box, job_id) == ("done", 2, 0, 2)


@pytest.mark.req("R001-6.02")
async def test_a_job_without_a_total_stays_open_until_it_is_idle(box: Rig) -> None:
    job_id = ids.uuid7()
    await box.direct(task(job_id, 1, 0), task(job_id, 2, 0))
    lane = await box.lane()
    await _finish(box, lane, 2)
    assert await _job(box, job_id) == ("running", 2, 0, 0)
    assert await box.ledger.idle(0) == [job_id]
    assert await box.ledger.close(job_id, 0)
    assert await _job(box, job_id) == ("done", 2, 0, 2)
    await box.direct(task(job_id, 3, 0))
    await box.nothing(lane)
    await box.settled()
    assert [letter.failure_code for letter in await box.letters()] == ["SYSTEM_EXPIRED"], "late work is not lost"


@pytest.mark.req("R001-5.03")
async def test_indexes_of_a_direct_producer_may_be_wrong(box: Rig) -> None:
    job_id = ids.uuid7()
    await box.direct(task(job_id, 1, 2), task(job_id, 2, 2, resource_index=1), task(job_id, 2, 2, resource_index=2))
    lane = await box.lane()
    seen = [settled.outcome for settled in await box.settle(lane, await box.claim(lane, 3), Success())]
    assert sorted(seen) == ["completed", "completed", "settled"]
    await box.settled()
    assert await _job(box, job_id) == ("done", 2, 0, 2), "each id counts once, whatever its index"


async def test_an_index_beyond_the_total_cannot_grow_the_bitmap(box: Rig) -> None:
    job_id = ids.uuid7()
    await box.direct(task(job_id, 1, 2, resource_index=4_000_000_000), task(job_id, 2, 2, resource_index=2))
    lane = await box.lane()
    await _finish(box, lane, 2)
    assert await _job(box, job_id) == ("done", 2, 0, 2)
    assert await box.ledger.size(job_id) < 10_000


@pytest.mark.fault(61)
async def test_a_pruned_job_is_not_made_again(box: Rig) -> None:
    job_id = await box.submit(1)
    await box.redis.delete(keys.job(job_id), keys.job_events(job_id))
    lane = await box.lane()
    await box.nothing(lane)
    await box.settled()
    assert await box.redis.keys(f"job:{job_id}*") == []


async def test_a_late_settlement_does_not_make_the_record_again(box: Rig) -> None:
    job_id = await box.submit(1)
    lane = await box.lane()
    claims = await box.claim(lane, 1)
    await box.redis.delete(keys.job(job_id), keys.job_events(job_id))
    assert [settled.outcome for settled in await box.settle(lane, claims, Success())] == ["absorbed"]
    await box.settled()
    assert await box.redis.keys(f"job:{job_id}*") == []


@pytest.mark.parametrize("payload", [b"\xff\xff\xff", b"", b"\x0a\x05ab", b"\x7a\x02hi"])
@pytest.mark.fault(29)
async def test_what_is_no_task_goes_to_the_dead_letters_byte_for_byte(box: Rig, payload: bytes) -> None:
    """queue_faults row 29: an undecodable message is never dropped."""
    entry = await box.redis.xadd(box.streams[0], {"payload": payload})
    job_id = await box.submit(1)
    lane = await box.lane()
    await _finish(box, lane, 1)
    await box.nothing(lane)
    await box.settled()
    (letter,) = await box.letters()
    assert (letter.failure_code, letter.undecodable) == ("VALIDATION_UNDECODABLE", payload)
    assert letter.id == f"{box.streams[0]}/{entry.decode()}"
    assert await _job(box, job_id) == ("done", 1, 0, 1)


async def test_a_task_with_an_impossible_job_id_is_a_dead_letter(box: Rig) -> None:
    bad = task("a{b}:c", 1, 1)
    await box.redis.xadd(box.streams[0], {"payload": bad.SerializeToString()})
    lane = await box.lane()
    await box.nothing(lane)
    await box.settled()
    (letter,) = await box.letters()
    assert (letter.failure_code, letter.task) == ("VALIDATION_TASK", bad)
    assert await box.redis.keys("job:*") == []


async def test_a_foreign_key_in_the_place_of_a_record_stops_nobody(box: Rig) -> None:
    job_id, good = ids.uuid7(), ids.uuid7()
    await box.redis.set(keys.job(job_id), "foreign")
    await box.direct(task(job_id, 1, 1), task(good, 1, 1))
    lane = await box.lane()
    await _finish(box, lane, 1)
    await box.nothing(lane)
    await box.settled()
    assert [letter.failure_code for letter in await box.letters()] == ["SYSTEM_INTERNAL"]


@pytest.mark.fault(58)
async def test_tasks_of_a_canceled_job_are_not_run(box: Rig) -> None:
    """queue_faults row 58: the cancel of work that nobody runs takes effect."""
    job_id = await box.submit(3)
    lane = await box.lane()
    claims = await box.claim(lane, 1)
    await box.ledger.cancel(job_id, "me")
    assert await lane.canceled([job_id, "gone"]) == {job_id, "gone"}
    assert [one.outcome for one in await box.settle(lane, claims, Success())] == ["absorbed"]
    await box.nothing(lane)
    await box.settled()
    assert await _job(box, job_id) == ("canceled", 0, 0, 3)
    assert await box.letters() == []
    assert (await box.statuses())[-1].last_error_code == "SYSTEM_CANCELED"


async def test_a_task_that_outlived_its_retention_is_a_dead_letter(box: Rig) -> None:
    job_id = ids.uuid7()
    box.config.streams.tasks.retention.FromSeconds(3600)
    old = task(job_id, 1, 1).SerializeToString()
    await box.redis.xadd(box.lane_of(job_id), {"payload": old}, id="1000000-0")
    lane = await box.lane()
    await box.nothing(lane)
    await box.settled()
    assert await _job(box, job_id) == ("error", 0, 1, 1)
    (letter,) = await box.letters()
    assert letter.failure_code == "SYSTEM_EXPIRED"


@pytest.mark.parametrize("loss", ["flushall", "delete", "destroy"])
@pytest.mark.fault(35)
async def test_a_lost_group_is_made_again(box: Rig, loss: str) -> None:
    """queue_faults row 35: NOGROUP heals, and settled work is not run again."""
    before = await box.submit(2)
    lane = await box.lane()
    await _finish(box, lane, 2)
    await lane._settler.flush()
    if loss == "flushall":
        await box.redis.flushall()
    for stream in box.streams if loss != "flushall" else ():
        if loss == "delete":
            await box.redis.delete(stream)
        else:
            await box.redis.xgroup_destroy(stream, keys.GROUP_WORKERS)
    if loss == "flushall":
        await until(lambda: _leased(box), lambda held: held, patience=25)
    after = await box.submit(2)
    claims = await box.claim(lane, 2, patience=25)
    assert {claim.task.job_id for claim in claims} == {after}
    await box.settle(lane, claims, Success())
    assert await _job(box, after) == ("done", 2, 0, 2)
    if loss != "flushall":
        assert await _job(box, before) == ("done", 2, 0, 2)


async def _leased(box: Rig) -> bool:
    return await box.redis.exists(*(keys.lease(stream) for stream in box.streams)) == len(box.streams)


@pytest.mark.fault(5, 35)
async def test_tokens_rise_after_a_lost_group(box: Rig) -> None:
    job_id = await box.submit(2)
    lane = await box.lane()
    first = await box.claim(lane, 2)
    await box.redis.xgroup_destroy(box.lane_of(job_id), keys.GROUP_WORKERS)
    second = await box.claim(lane, 2)
    assert {claim.task.resource_id for claim in second} == {"r1", "r2"}
    settled = await box.settle(lane, second, Success())
    assert [one.outcome for one in settled] == ["completed"] * 2
    assert [one.outcome for one in await box.settle(lane, first, Success())] == ["settled"] * 2
    assert await _job(box, job_id) == ("done", 2, 0, 2)


@pytest.mark.fault(34)
async def test_consumer_names_do_not_pile_up(box: Rig) -> None:
    """queue_faults row 34: one consumer a restart would leak."""
    stream = box.lane_of(await box.submit(1))
    for number in range(12):
        lane = await box.lane(f"w{number}")
        await lane.claim(1, 0.01)
        await (lane.stop() if number % 2 else box.die(lane))
    last = await box.lane("last")
    await box.settle(last, await box.claim(last, 1), Success())
    await last.claim(1, 0.2)
    names = {consumer["name"] for consumer in await box.redis.xinfo_consumers(stream, keys.GROUP_WORKERS)}
    assert names <= {b"last", b"last.solo", b"_returned", b"_suspect", b"_delayed"}


@pytest.mark.fault(52)
async def test_one_busy_partition_fills_all_slots(box: Rig) -> None:
    await box.submit(200)
    lane = await box.lane()
    assert len(await lane.claim(64, 1)) == 64
