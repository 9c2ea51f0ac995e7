"""Tasks of seed 004 in the lane: state, event and acknowledgement in order; fences, retries, crashes, bare workers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from lane_rig import Rig, rig, settings, until

from fetchbox.jobs.jobs_pb2 import JobState
from kernel.ledger.state_index import bounds
from kernel.queue.streams.stream import Claim, Failure, StreamLane, Success
from kernel.redis import keys
from kernel.telemetry import metrics
from kernel.telemetry.metrics import REGISTRY

PASSING = Failure("HANDLER_HTTP_503", "not now")
FINAL = Failure("HANDLER_HTTP_400", "never")


@pytest_asyncio.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


async def _types(box: Rig, job_id: str) -> list[str]:
    return [kind for kind, _ in await box.told(job_id)]


async def _empty(box: Rig) -> None:
    """The queue is empty, and so is what is kept beside it."""
    await box.settled()
    await until(lambda: box.redis.xlen(keys.QUEUE), lambda length: length == 0)
    for side in (keys.open_tasks(), keys.redo(keys.QUEUE), keys.delayed(keys.QUEUE)):
        assert await box.redis.exists(side) == 0, side


async def _one(box: Rig, lane: StreamLane) -> Claim:
    return (await box.claim(lane, 1))[0]


@pytest.mark.req("R004-worker.05", "R004-worker.06", "R004-worker.07", "R004-queue.03", "R004-worker.01")
async def test_state_and_event_are_there_before_the_work(box: Rig) -> None:
    job_id = await box.create(payload='{"big": 847458834325543643, "empty": []}')
    lane, before = await box.lane(), await box.clients.now_ms()
    claim = await _one(box, lane)
    record = await box.record(job_id)
    assert record["status"] == "running"
    assert before <= int(record["updated_ts"]) <= await box.clients.now_ms()
    assert await box.told(job_id) == [("queued", "{}"), ("running", '{"attempt":1}')]
    assert claim.queued is not None
    assert claim.queued.payload == b'{"big": 847458834325543643, "empty": []}'
    assert (claim.job_type, claim.resource_id, claim.queued.ttl_s) == ("chat", "", 60)
    assert await box.redis.xlen(keys.QUEUE) == 1


@pytest.mark.req(
    "R004-worker.02", "R004-worker.03", "R004-worker.04", "R004-worker.08", "R004-worker.10", "R004-worker.11"
)
@pytest.mark.fault(30)
async def test_the_end_is_recorded_told_published_and_only_then_acknowledged(box: Rig) -> None:
    job_id = await box.create()
    lane = await box.lane()
    claim = await _one(box, lane)
    lines: list[str] = []
    async with box.redis.monitor() as monitor, asyncio.timeout(20):
        settled = await lane.settle(claim, Success(result=b'{"answer": [1, 2.50]}'))
        while not any(line.startswith(f"XDEL {keys.QUEUE} ") for line in lines):
            lines.append((await monitor.next_command())["command"])
    steps = [f"HSET {keys.job(job_id)} status done ", f"XADD {keys.job_events(job_id)} * type done "]
    steps += [f"EXPIRE {keys.job(job_id)} 60", f"EXPIRE {keys.job_events(job_id)} 60"]
    steps += [f"XADD {keys.stream(keys.STATUS, 0)[:-1]}", f"XACK {keys.QUEUE} {keys.GROUP_WORKERS} {claim.entry}"]
    assert [step for line in lines for step in steps if line.startswith(step)] == steps
    assert settled.outcome == "completed"
    record = await box.record(job_id)
    assert (record["status"], record["result"], record["error"]) == ("done", '{"answer": [1, 2.50]}', "")
    assert (await box.told(job_id))[-1] == ("done", '{"attempts":1}')
    (status,) = await box.statuses()
    assert (status.job_id, status.job_type, status.state) == (job_id, "chat", JobState.JOB_STATE_COMPLETED)
    assert status.revision == int(record["rev"])
    assert [line.message for line in await box.logs()] == ["completed"]
    await _empty(box)


@pytest.mark.req("R004-worker.09", "R004-events.08")
async def test_a_final_failure_ends_as_error_and_as_a_dead_letter(box: Rig) -> None:
    job_id = await box.create(payload='{"n": 1}')
    lane = await box.lane()
    settled = await lane.settle(await _one(box, lane), Failure("HANDLER_HTTP_400", "no such model"))
    assert settled.outcome == "failed"
    record = await box.record(job_id)
    error = {"code": "HANDLER_HTTP_400", "message": "no such model", "attempts": 1}
    assert (record["status"], record["result"], json.loads(record["error"])) == ("error", "", error)
    kind, data = (await box.told(job_id))[-1]
    assert (kind, json.loads(data)) == ("error", error)
    (letter,) = await box.letters()
    assert (letter.queued_task.job_id, letter.queued_task.payload, letter.queued_task.task) == (
        job_id,
        b'{"n": 1}',
        "chat",
    )
    assert (letter.id, letter.failure_code, letter.HasField("task")) == (f"{job_id}//0", "HANDLER_HTTP_400", False)
    await _empty(box)


@pytest.mark.req("R004-worker.12", "R004-worker.13", "R004-worker.14", "R004-worker.15", "R004-state.02")
async def test_the_clock_of_record_and_events_starts_at_the_end(box: Rig) -> None:
    job_id = await box.foreign(ttl_s="90")
    lane = await box.lane()
    claim = await _one(box, lane)
    names = (keys.job(job_id), keys.job_events(job_id))
    assert [await box.redis.ttl(name) for name in names] == [-1, -1], "a running job does not expire"
    await lane.settle(claim, Success())
    assert [80 < await box.redis.ttl(name) <= 90 for name in names] == [True, True]


async def test_a_job_that_is_put_off_after_its_start_is_queued_again_and_nothing_of_it_counts(box: Rig) -> None:
    job_id = await box.create()
    lane = await box.lane()
    put_off = Failure("HANDLER_CIRCUIT_OPEN", "open", counts=False)
    consumed = REGISTRY.get_sample_value("jobs_consumed_total", {"queue": keys.QUEUE}) or 0
    for token in (1, 2, 3):
        claim = await _one(box, lane)
        assert (claim.attempt, claim.token) == (0, token)
        # The second time is as after a lost reply.
        assert [(await lane.settle(claim, put_off)).outcome for _ in range(2)] == ["deferred"] * 2
        assert (await box.redis.hget(keys.job(job_id), "status")) == b"queued"
        assert await box.redis.zscore(keys.STATES, job_id) <= bounds("queued")[1]
    claim = await _one(box, lane)
    assert (await lane.settle(claim, PASSING)).outcome == "retrying"
    assert (await lane.settle(await _one(box, lane), put_off)).outcome == "deferred"
    assert (await box.redis.hget(keys.job(job_id), "status")) == b"running", "it has failed in an attempt"
    assert (await lane.settle(await _one(box, lane), Success())).outcome == "completed"
    told = await box.told(job_id)
    assert [data for kind, data in told if kind == "running"] == ['{"attempt":1}'] * 4 + ['{"attempt":2}'] * 2
    assert [kind for kind, _ in told].count("deferred") == 1
    after = REGISTRY.get_sample_value("jobs_consumed_total", {"queue": keys.QUEUE}) or 0
    assert after - consumed == 2, "two attempts"


async def test_an_attempt_that_will_be_repeated_is_told_and_waits_outside_a_slot(box: Rig) -> None:
    job_id = await box.create()
    lane = await box.lane()
    settled = await lane.settle(await _one(box, lane), PASSING)
    assert settled.outcome == "retrying"
    again = await _one(box, lane)
    assert (again.attempt, again.token) == (1, 2)
    assert (await lane.settle(again, Success())).outcome == "completed"
    told = await box.told(job_id)
    assert [kind for kind, _ in told] == ["queued", "running", "retry", "running", "done"]
    assert json.loads(told[2][1])["code"] == "HANDLER_HTTP_503"
    assert told[3:] == [("running", '{"attempt":2}'), ("done", '{"attempts":2}')]
    retried, done = [dict(line.fields) for line in await box.logs()]
    assert retried.pop("delay_ms").isdigit()
    assert all(int(fields.pop("duration_ms")) >= 0 for fields in (retried, done))
    assert retried == {"attempt": "1", "code": "HANDLER_HTTP_503", "outcome": "retry"}
    assert done == {"attempt": "2", "outcome": "done"}
    await _empty(box)


async def test_retries_end(box: Rig) -> None:
    box.retries = 1
    job_id = await box.create()
    lane = await box.lane()
    assert (await lane.settle(await _one(box, lane), PASSING)).outcome == "retrying"
    assert (await lane.settle(await _one(box, lane), PASSING)).outcome == "failed"
    assert json.loads((await box.record(job_id))["error"])["attempts"] == 2
    assert [letter.attempts for letter in await box.letters()] == [2]
    failed = dict((await box.logs())[-1].fields)
    assert int(failed.pop("duration_ms")) >= 0
    assert failed == {"attempt": "2", "code": "HANDLER_HTTP_503", "outcome": "failed"}


async def test_events_are_written_once_and_before_the_end(box: Rig) -> None:
    job_id = await box.create()
    lane = await box.lane()
    claim = await _one(box, lane)
    tokens = [("token", b'{"text":"a"}'), ("token", b'{"text":"b"}')]
    assert await lane.report(claim, 1, tokens)
    assert await lane.report(claim, 1, [*tokens, ("progress", b"{}")]), "a repetition adds what is new"
    last = lane.report(claim, 4, [("log", b'{"message":"c"}')])
    ended = lane.settle(claim, Success())
    assert await last
    assert (await ended).outcome == "completed"
    assert await _types(box, job_id) == ["queued", "running", "token", "token", "progress", "log", "done"]


@pytest.mark.parametrize("end", ["cancel", "fence", "lapse", "settle"])
async def test_an_attempt_that_is_over_can_tell_nothing(box: Rig, end: str) -> None:
    job_id = await box.create()
    lane = await box.lane()
    claim = await _one(box, lane)
    if end == "cancel":
        await box.ledger.cancel(job_id, "test")
    elif end == "fence":
        await box.redis.hset(keys.job(job_id), "fence", 7)
    elif end == "lapse":
        lane._lease_changed(alive=False)
    else:
        await lane.settle(claim, Success())
    before = await box.told(job_id)
    assert not await lane.report(claim, 1, [("token", b"{}")])
    outcome = (await lane.settle(claim, Success(result=b"1"))).outcome
    assert outcome == {"cancel": "absorbed", "fence": "fenced", "lapse": "fenced", "settle": "settled"}[end]
    assert await box.told(job_id) == before


@pytest.mark.fault(58)
async def test_a_canceled_job_leaves_the_queue_without_a_run(box: Rig) -> None:
    job_id = await box.create()
    await box.ledger.cancel(job_id, "test")
    lane = await box.lane()
    await box.nothing(lane)
    assert await _types(box, job_id) == ["queued", "canceled"]
    assert (await box.record(job_id))["status"] == "canceled"
    await _empty(box)


async def test_a_dead_workers_task_is_run_again_and_the_dead_one_is_fenced(box: Rig) -> None:
    job_id = await box.create()
    dead = await box.lane("dead")
    lost = await _one(box, dead)
    await box.die(dead)
    lane = await box.lane()
    claim = await _one(box, lane)
    assert (claim.token, claim.crashes) == (2, 1)
    assert (await lane.settle(Claim(**_fields(lost), epoch=lane.epoch), Success(result=b'"late"'))).outcome == "fenced"
    assert (await lane.settle(claim, Success(result=b'"mine"'))).outcome == "completed"
    assert (await box.record(job_id))["result"] == '"mine"'
    assert await _types(box, job_id) == ["queued", "running", "running", "done"]
    await _empty(box)


def _fields(claim: Claim) -> dict[str, object]:
    names = ("partition", "entry", "payload", "work", "token", "attempt", "crashes", "traceparent")
    return {name: getattr(claim, name) for name in names}


@pytest.mark.fault(23)
async def test_a_task_that_keeps_killing_ends_as_a_dead_letter(box: Rig) -> None:
    job_id = await box.create()
    for number in range(3):
        lane = await box.lane(f"victim{number}")
        await _one(box, lane)
        await box.die(lane)
    lane = await box.lane()
    await box.nothing(lane, 0.5)
    await _empty(box)
    record = await box.record(job_id)
    assert (record["status"], json.loads(record["error"])["code"]) == ("error", "SYSTEM_CRASH_LOOP")
    assert [letter.failure_code for letter in await box.letters()] == ["SYSTEM_CRASH_LOOP"]
    assert await _types(box, job_id) == ["queued", "running", "running", "running", "error"]


async def test_what_is_given_back_costs_nothing(box: Rig) -> None:
    await box.create()
    one, two = await box.lane("w1"), await box.lane("w2")
    await one.give_back(await box.claim(one, 1))
    claim = await _one(box, two)
    assert (claim.attempt, claim.crashes) == (0, 0)
    assert (await two.settle(claim, Success())).outcome == "completed"
    await _empty(box)


async def test_a_worker_that_never_took_a_lease_keeps_its_entries_for_long(box: Rig) -> None:
    """contracts, Workers: a bare worker of seed 004 has no heartbeat."""
    job_id = await box.foreign()
    box.config.tasks.unregistered_idle.FromSeconds(3600)
    patient = await box.lane("patient")
    await box.redis.xreadgroup(keys.GROUP_WORKERS, "bare", {keys.QUEUE: ">"})
    await box.nothing(patient, 0.3)
    box.config.tasks.unregistered_idle.FromMilliseconds(50)
    lane = await box.lane("w2")
    claim = await _one(box, lane)
    assert (claim.job_id, claim.crashes) == (job_id, 1)


def _undecodable() -> float:
    return metrics.REGISTRY.get_sample_value("fetchbox_undecodable_entries_total", {"topic": keys.QUEUE}) or 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"junk": "x"},
        {"job_id": "a/b", "task": "chat", "payload": "{}"},
        {"job_id": b"\xff", "task": "chat", "payload": "{}"},
        {"job_id": "j", "task": "", "payload": "{}"},
        {"job_id": "j", "task": "chat"},
    ],
)
@pytest.mark.fault(29)
async def test_an_entry_that_nobody_can_read_is_kept_as_it_is(box: Rig, fields: dict[str, str | bytes]) -> None:
    """queue_faults row 29."""
    before = _undecodable()
    entry = (await box.redis.xadd(keys.QUEUE, fields)).decode()
    await box.nothing(await box.lane())
    await _empty(box)
    assert _undecodable() == before + 1
    (letter,) = await box.letters()
    assert (letter.id, letter.failure_code) == (f"{keys.QUEUE}/{entry}", "VALIDATION_UNDECODABLE")
    parts = [base64.b64decode(part) for part in json.loads(letter.undecodable)]
    expected = {name.encode(): value.encode() if isinstance(value, str) else value for name, value in fields.items()}
    assert dict(zip(parts[::2], parts[1::2], strict=True)) == expected


@pytest.mark.fault(61)
async def test_a_foreign_job_whose_record_expired_is_kept_as_a_dead_letter(box: Rig) -> None:
    """queue_faults row 61."""
    job_id = await box.foreign(payload='{"q": 1}')
    await box.redis.delete(keys.job(job_id), keys.job_events(job_id))
    await box.nothing(await box.lane())
    await _empty(box)
    (letter,) = await box.letters()
    assert (letter.failure_code, letter.queued_task.payload) == ("SYSTEM_EXPIRED", b'{"q": 1}')
    assert await box.redis.exists(keys.job(job_id)) == 0, "a late write never makes a record again"


async def test_our_own_job_whose_record_expired_had_ended(box: Rig) -> None:
    job_id = await box.create()
    await box.redis.delete(keys.job(job_id), keys.job_events(job_id))
    await box.nothing(await box.lane())
    await _empty(box)
    assert await box.letters() == []


async def test_a_settlement_that_is_repeated_says_what_was_recorded(box: Rig) -> None:
    job_id = await box.create()
    lane = await box.lane()
    claim = await _one(box, lane)
    assert (await lane.settle(claim, FINAL)).outcome == "failed"
    assert (await lane.settle(claim, FINAL)).outcome == "settled"
    assert (await _types(box, job_id)).count("error") == 1
    assert len({letter.id for letter in await box.letters()}) == 1


async def test_a_task_for_workers_elsewhere_is_put_aside(box: Rig) -> None:
    job_id = await box.create("tool")
    box.remote = {"tool"}
    lane, lending = await box.lane(), await box.lending()
    await box.nothing(lane)
    assert lane._starter.routed.is_set()
    assert await _types(box, job_id) == ["queued"], "nothing has begun"
    assert await lending.lying_aside() == {"tool": 1}
    await box.nothing(lane)
    (claim,) = await lending.collect(["tool"], 5) or []
    assert (claim.job_id, claim.attempt, claim.crashes) == (job_id, 0, 0)
    assert await lending.collect(["tool"], 5) == []
    assert (await lending.settle(claim, Success())).outcome == "completed"
    await _empty(box)


async def test_a_lane_that_runs_nothing_puts_all_aside_and_slots_find_it(box: Rig) -> None:
    """Also what was put aside for workers elsewhere by a configuration that is no more."""
    box.remote = {"tool"}
    chat, tool = await box.create("chat"), await box.create("tool")
    foreign = await box.foreign("something else")
    lending = await box.lending()
    assert await until(lambda: lending.put_aside(10, 0.2), bool) == 3
    assert await lending.lying_aside() == {"tool": 1}
    assert await _types(box, chat) == ["queued"]
    box.remote = set()
    lane = await box.lane()
    claims = await box.claim(lane, 3)
    assert {claim.job_id for claim in claims} == {chat, tool, foreign}
    assert {(claim.attempt, claim.crashes) for claim in claims} == {(0, 0)}
    await box.settle(lane, claims, Success())
    await _empty(box)


async def test_what_must_run_alone_elsewhere_waits_for_a_worker_that_holds_nothing(box: Rig) -> None:
    box.remote = {"tool"}
    suspect, other = await box.create("tool"), await box.create("tool")
    lending = await box.lending()
    assert await until(lambda: lending.put_aside(2, 0.2), bool) == 2
    ((entry, _),) = await box.redis.xrange(keys.QUEUE, count=1)
    await box.redis.hset(keys.redo(keys.QUEUE), entry, "1:2")
    assert await lending.collect(["tool"], 5, empty=False) is None
    (alone,) = await lending.collect(["tool"], 5, empty=True) or []
    assert (alone.job_id, alone.solo, alone.attempt, alone.crashes) == (suspect, True, 1, 2)
    (claim,) = await lending.collect(["tool"], 5, empty=False) or []
    assert (claim.job_id, claim.solo) == (other, False)
    await lending.give_back([alone, claim])
    assert await box.pending() == 2


async def test_both_kinds_come_through_one_lane(box: Rig) -> None:
    fetch = await box.submit(5)
    tasks = [await box.create() for _ in range(5)]
    lane = await box.lane()
    claims = await box.claim(lane, 10)
    assert {claim.job_id for claim in claims} == {fetch, *tasks}
    outcomes = await asyncio.gather(*(lane.settle(claim, Success()) for claim in claims))
    assert {one.outcome for one in outcomes} == {"completed"}
    await _empty(box)


@pytest.mark.parametrize("ttl_s", ["-5", "x", "", "1e30", "60.5", "0", "99999999999", "nan"])
async def test_a_foreign_record_with_odd_numbers_ends_like_any_other(box: Rig, ttl_s: str) -> None:
    job_id = await box.foreign(ttl_s=ttl_s, created_ts="soon", updated_ts="", rev="one")
    lane = await box.lane()
    assert (await lane.settle(await _one(box, lane), Success())).outcome == "completed"
    assert await _types(box, job_id) == ["queued", "running", "done"]
    assert 0 < await box.redis.ttl(keys.job(job_id)) <= 3600
    assert await box.letters() == []
    canceled = await box.foreign(ttl_s=ttl_s, rev="one")
    await box.ledger.cancel(canceled, "test")
    assert 0 < await box.redis.ttl(keys.job_events(canceled)) <= 3600


async def test_a_foreign_job_is_listed_once_it_runs(box: Rig) -> None:
    job_id = await box.foreign()
    await _one(box, await box.lane())
    records, _ = await box.ledger.page(10, task="chat")
    assert [record.job_id for record in records] == [job_id]
    assert await box.redis.zscore(keys.expiring_index(), job_id) is not None
