"""What a settlement records and makes known, and that it does so whatever breaks in between."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lane_rig import NEVER_HELD, PASSING, Rig, rig, settings, until

from fetchbox.jobs.jobs_pb2 import JobLog, JobState, LogLevel
from kernel.queue.streams.stream import Failure, StreamLane, Success
from kernel.redis import keys
from kernel.telemetry.metrics import REGISTRY


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


def _consumed(queue: str) -> float:
    return REGISTRY.get_sample_value("jobs_consumed_total", {"queue": queue}) or 0


async def _counts(box: Rig, job_id: str) -> tuple[str, int, int]:
    record = await box.ledger.get(job_id)
    assert record is not None
    return record.status, record.resource_completed, record.resource_failed


@pytest.mark.req("R000-4.05", "R000-4.06", "R000-4.07")
async def test_each_settlement_publishes_the_jobs_aggregated_status(box: Rig) -> None:
    job_id = await box.submit(3)
    lane = await box.lane()
    for claim, outcome in zip(await box.claim(lane, 3), (Success(), NEVER_HELD, Success()), strict=True):
        await lane.settle(claim, outcome)
    statuses = await box.statuses()
    assert [(s.resources_completed, s.resources_failed) for s in statuses] == [(1, 0), (1, 1), (2, 1)]
    assert [s.state for s in statuses] == [JobState.JOB_STATE_IN_PROGRESS] * 2 + [JobState.JOB_STATE_PARTIAL]
    revisions = [s.revision for s in statuses]
    assert revisions == sorted(set(revisions))
    last = statuses[-1]
    record = await box.ledger.get(job_id)
    assert record is not None
    assert (last.job_id, last.job_type, last.resources_total) == (job_id, "default", 3)
    assert (last.last_error_code, last.last_error_message) == ("DOWNLOAD_HTTP_404", "not there")
    assert (last.timestamp_ms, last.log_offset) == (record.updated_ms, record.log_offset)
    assert last.manifest_key == record.manifest_key


@pytest.mark.req("R000-4.07")
async def test_a_flush_publishes_one_status_a_job(box: Rig) -> None:
    await box.submit(50)
    lane = await box.lane()
    claims = await box.claim(lane, 50)
    await box.settle(lane, claims, Success())
    statuses = await box.statuses()
    assert len(statuses) < 5
    assert statuses[-1].resources_completed == 50


@pytest.mark.req("R000-4.08")
async def test_each_task_is_logged(box: Rig) -> None:
    job_id = await box.submit(3)
    lane = await box.lane()
    one, two, three = await box.claim(lane, 3)
    own = JobLog(resource_id="r3", level=LogLevel.LOG_LEVEL_WARN, message="own words")
    await asyncio.gather(
        lane.settle(one, Success()), lane.settle(two, NEVER_HELD), lane.settle(three, Success(b"", (own,)))
    )
    logs = {log.resource_id: log for log in await box.logs()}
    assert logs[one.task.resource_id].level == LogLevel.LOG_LEVEL_INFO
    failed = logs[two.task.resource_id]
    assert (failed.level, failed.fields["code"], failed.message) == (
        LogLevel.LOG_LEVEL_ERROR,
        "DOWNLOAD_HTTP_404",
        "not there",
    )
    assert logs["r3"].message == "own words"
    assert dict(logs[one.task.resource_id].fields) == {"attempt": "1", "outcome": "done"}
    assert dict(failed.fields) == {"attempt": "1", "code": "DOWNLOAD_HTTP_404", "outcome": "failed"}
    assert {log.job_id for log in logs.values()} == {job_id}
    record = await box.ledger.get(job_id)
    assert record is not None
    first = (await box.redis.xrange(keys.stream(keys.LOGS, keys.partition_of(job_id, 4))))[0][0].decode()
    ms, seq = first.split("-")
    assert record.log_offset < (int(ms) << 20 | int(seq)), "the cursor lies before the first line"


@pytest.mark.req("R000-4.09")
async def test_a_final_failure_is_a_dead_letter(box: Rig) -> None:
    job_id = await box.submit(1)
    lane = await box.lane()
    (claim,) = await box.claim(lane, 1)
    assert (await lane.settle(claim, NEVER_HELD)).outcome == "failed"
    (letter,) = await box.letters()
    assert letter.task == claim.task
    assert (letter.failure_code, letter.failure_message, letter.attempts) == ("DOWNLOAD_HTTP_404", "not there", 1)
    assert letter.id == f"{job_id}/r1/0"
    assert letter.failed_at_ms > 0


@pytest.mark.parametrize(("failures", "status"), [(0, "done"), (1, "partial"), (3, "error")])
@pytest.mark.fault(66)
async def test_a_job_ends_with_its_last_task(box: Rig, failures: int, status: str) -> None:
    job_id = await box.submit(3)
    lane = await box.lane()
    claims = await box.claim(lane, 3)
    await box.settle(lane, claims[:failures], NEVER_HELD)
    assert (await _counts(box, job_id))[0] == ("running" if failures < 3 else "error")
    await box.settle(lane, claims[failures:], Success())
    assert await _counts(box, job_id) == (status, 3 - failures, failures)
    assert (await box.events(job_id))[-1] == ("error" if status == "error" else "done")
    assert await box.ledger.ended_before(9_000_000_000_000, 5) == [job_id]


@pytest.mark.fault(26, 27)
async def test_a_retry_waits_in_the_delay_set_with_its_entry_untouched(box: Rig) -> None:
    """queue_faults rows 26 and 27: a retry has a due time of its own and holds no slot."""
    job_id = await box.submit(1)
    lane = await box.lane()
    (claim,) = await box.claim(lane, 1)
    assert (await lane.settle(claim, Failure("DOWNLOAD_DNS", "no", retry_after=0.4))).outcome == "retrying"
    assert await box.redis.zcard(keys.delayed(box.lane_of(job_id))) == 1
    assert await box.pending() == 1, "it never leaves the pending list"
    other = await box.submit(1)
    assert [found.task.job_id for found in await box.claim(lane, 1, 0.3)] == [other]
    (again,) = await box.claim(lane, 1)
    assert (again.entry, again.payload, again.attempt) == (claim.entry, claim.payload, 1)
    assert again.token > claim.token
    assert await box.redis.zcard(keys.delayed(box.lane_of(job_id))) == 0
    assert "retry" in await box.events(job_id)
    event = next(event for event in await box.ledger.events(job_id) if event.type == "retry")
    assert json.loads(event.data)["delay_ms"] >= 400


@pytest.mark.fault(26)
async def test_attempts_run_out(box: Rig) -> None:
    box.retries = 2
    job_id = await box.submit(1)
    lane = await box.lane()
    outcomes = []
    for _ in range(3):
        (claim,) = await box.claim(lane, 1)
        outcomes.append((await lane.settle(claim, PASSING)).outcome)
    assert outcomes == ["retrying", "retrying", "failed"]
    (letter,) = await box.letters()
    assert letter.attempts == 3
    await box.settled()
    assert await _counts(box, job_id) == ("error", 0, 1)
    assert await box.redis.exists(keys.redo(box.lane_of(job_id))) == 0, "nothing is kept of settled entries"


@pytest.mark.fault(69)
async def test_a_deferral_costs_no_attempt(box: Rig) -> None:
    """queue_faults row 69: an open breaker burns no retries."""
    box.retries = 0
    job_id = await box.submit(1)
    lane = await box.lane()
    before = _consumed(keys.TASKS)
    for _ in range(5):
        (claim,) = await box.claim(lane, 1)
        assert claim.attempt == 0
        deferred = await lane.settle(claim, Failure("DOWNLOAD_CIRCUIT_OPEN", "open", counts=False))
        assert deferred.outcome == "deferred"
        record = await box.ledger.get(job_id)
        assert record is not None
        assert record.status == "queued"
    (claim,) = await box.claim(lane, 1)
    assert (await lane.settle(claim, Success())).outcome == "completed"
    assert [line.fields.get("outcome") for line in await box.logs()] == [None] * 5 + ["done"]
    assert _consumed(keys.TASKS) == before + 1


@pytest.mark.fault(27)
async def test_failing_tasks_leave_their_slots_free(box: Rig) -> None:
    """queue_faults row 27: ten failing tasks in their backoff, one good task runs at once."""
    await box.submit(10)
    lane = await box.lane()
    claims = await box.claim(lane, 10)
    await box.settle(lane, claims, Failure("DOWNLOAD_DNS", "no", retry_after=30))
    await box.submit(1)
    assert len(await box.claim(lane, 1, 1)) == 1


async def test_a_second_settlement_changes_nothing(box: Rig) -> None:
    job_id = await box.submit(2)
    lane = await box.lane()
    claims = await box.claim(lane, 2)
    await box.settle(lane, claims[:1], NEVER_HELD)
    assert [one.outcome for one in await box.settle(lane, claims[:1], Success())] == ["settled"]
    assert await _counts(box, job_id) == ("running", 0, 1)
    await box.settle(lane, claims[1:], Success())
    assert [one.outcome for one in await box.settle(lane, claims, NEVER_HELD)] == ["settled"] * 2
    assert await _counts(box, job_id) == ("partial", 1, 1)
    assert {letter.id for letter in await box.letters()} == {f"{job_id}/{claims[0].task.resource_id}/0"}


async def _settle_script_only(lane: StreamLane, claims: list[Any]) -> None:
    """Records outcomes and dies before anything is published."""
    from kernel.queue.streams.item import Item  # noqa: PLC0415  # only this helper reaches inside
    from kernel.queue.work.retry import Verdict  # noqa: PLC0415  # only this helper reaches inside

    error = b'{"code":"DOWNLOAD_HTTP_404","message":"not there","attempts":1}'
    items = [Item(claim, Verdict("f", 1, error, b"{}"), "DOWNLOAD_HTTP_404", "not there") for claim in claims]
    await lane._link.run([lane._settler._settle(items)])


@pytest.mark.req("R000-1.14", "R000-4.06", "R000-4.08", "R000-4.09")
@pytest.mark.parametrize("total", [1, 2, 5])
@pytest.mark.fault(20)
async def test_a_crash_between_record_and_publications_repeats_them(box: Rig, total: int) -> None:
    job_id = await box.submit(total)
    lane = await box.lane()
    claims = await box.claim(lane, total)
    await _settle_script_only(lane, claims)
    assert await box.statuses() == []
    await box.die(lane)
    heir = await box.lane("w2")
    await box.nothing(heir, 0.4)
    await box.settled()
    assert await _counts(box, job_id) == ("error", 0, total)
    status = (await box.statuses())[-1]
    assert (status.state, status.resources_failed) == (JobState.JOB_STATE_FAILED, total)
    letters = await box.letters()
    assert {letter.id for letter in letters} == {f"{job_id}/r{n}/0" for n in range(1, total + 1)}
    assert {letter.failure_code for letter in letters} == {"DOWNLOAD_HTTP_404"}
    assert len(await box.logs()) == total
    assert await box.ledger.ended_before(9_000_000_000_000, 5) == [job_id]
    assert await box.events(job_id) in (["queued", "running", "error"], ["queued", "running", "progress", "error"])


@pytest.mark.fault(66)
async def test_a_finalization_is_found_although_its_worker_died(box: Rig) -> None:
    box.finalizing = True
    job_id = await box.submit(2)
    lane = await box.lane()
    claims = await box.claim(lane, 2)
    first = await lane.settle(claims[0], Success(b'{"resource_id":"r1"}'))
    assert not first.final_due
    last = await lane.settle(claims[1], Success(b'{"resource_id":"r2"}'))
    assert last.final_due
    assert (await _counts(box, job_id))[0] == "running", "the finalizer ends it"
    assert await box.ledger.results(job_id) == [b'{"resource_id":"r1"}', b'{"resource_id":"r2"}']
    await box.die(lane)
    heir = await box.lane("w2")
    assert await heir.finals(10) == [job_id]
    assert await heir.finals(10) == [], "it is put off while somebody works at it"
    hold = await box.ledger.begin_final(job_id, "w2", 1000)
    assert await box.ledger.end_final(job_id, "w2", hold.generation, "") == (True, "done")
    assert await box.ledger.results(job_id) == []


async def test_results_are_kept_only_where_they_are_wanted(box: Rig) -> None:
    job_id = await box.submit(1)
    lane = await box.lane()
    await box.settle(lane, await box.claim(lane, 1), Success(b"{}"))
    assert not await box.redis.exists(keys.job_results(job_id))


@pytest.mark.fault(25)
async def test_a_replay_opens_the_job_and_fences_the_old_run(box: Rig) -> None:
    """queue_faults row 25: a replay keeps its number, is capped, and can be forced."""
    for total in (1, 3):
        job_id = await box.submit(total)
        lane = await box.lane(f"w-{total}")
        claims = await box.claim(lane, total)
        await box.settle(lane, claims, NEVER_HELD)
        old = next(claim for claim in claims if claim.task.resource_index == 1)
        assert await box.ledger.replay(job_id, "r1", 1, 0, 1) == ("replayed", 1)
        assert await box.ledger.replay(job_id, "r1", 1, 0, 1) == ("already_replayed", 1)
        assert await _counts(box, job_id) == ("running", 0, total - 1)
        assert (await lane.settle(old, Success())).outcome == "fenced"
        again = old.task
        again.replay = 1
        await box.direct(again)
        (claim,) = await box.claim(lane, 1)
        assert claim.token >> 20 == 1
        await lane.settle(claim, NEVER_HELD)
        assert await box.ledger.replay(job_id, "r1", 1, 1, 1) == ("too_many_replays", 1)
        assert await box.ledger.replay(job_id, "r1", 1, 1, 0) == ("replayed", 2)
        again.replay = 2
        await box.direct(again, old.task)
        claim = (await box.claim(lane, 1))[0]
        await lane.settle(claim, Success())
        assert await box.ledger.replay(job_id, "r1", 1, 2, 5) == ("not_failed", 2)
        assert await _counts(box, job_id) == ("partial" if total > 1 else "done", 1, total - 1)
        await lane.stop()


async def test_work_that_a_replay_has_overtaken_is_not_run(box: Rig) -> None:
    job_id = await box.submit(2)
    lane = await box.lane()
    claims = await box.claim(lane, 2)
    await box.settle(lane, claims, NEVER_HELD)
    await box.ledger.replay(job_id, "r1", 1, 0, 3)
    await box.direct(next(claim.task for claim in claims if claim.task.resource_index == 1))
    await box.nothing(lane)
    await box.settled()
    assert await _counts(box, job_id) == ("running", 0, 1)


async def test_progress_of_a_long_job_is_told_in_steps(box: Rig) -> None:
    job_id = await box.submit(200)
    lane = await box.lane()
    for claim in await box.claim(lane, 200):
        await lane.settle(claim, Success())
    events = await box.events(job_id)
    assert events.count("progress") == 19
    assert events[-1] == "done"
    assert await box.ledger.size(job_id) < 8000  # 4.3 KB in Valkey 9, 7.2 KB in Redis 7


async def test_settlements_gather_without_a_timer(box: Rig) -> None:
    await box.submit(400)
    lane = await box.lane()
    claims = await box.claim(lane, 400)
    before = (await box.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await box.settle(lane, claims, Success())
    spent = (await box.redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before
    assert spent < 30


async def test_acknowledgement_comes_last(box: Rig) -> None:
    """Whoever looks at any moment finds either the pending entry or all that its settlement makes known."""
    lane = await box.lane()
    for _ in range(20):
        await box.submit(1)
        claims = await box.claim(lane, 1)
        settling = asyncio.ensure_future(lane.settle(claims[0], Success()))
        await until(box.pending, lambda count: count == 0)
        assert settling.done()
    assert len(await box.logs()) == 20
    assert len(await box.statuses()) == 20


async def test_metrics_count_outcomes(box: Rig) -> None:
    from kernel.telemetry import metrics  # noqa: PLC0415  # one test of this file reads metrics

    def value(outcome: str) -> float:
        return float(metrics.TASKS.labels(outcome=outcome)._value.get())

    before = value("completed"), value("failed")
    await box.submit(3)
    lane = await box.lane()
    one, *rest = await box.claim(lane, 3)
    await box.settle(lane, rest, Success())
    await box.settle(lane, [one], NEVER_HELD)
    assert (value("completed"), value("failed")) == (before[0] + 2, before[1] + 1)


async def test_nothing_is_left_behind(box: Rig) -> None:
    """Every key that is left belongs to a job, a stream or an index that retention knows."""
    await box.submit(3)
    lane = await box.lane()
    await box.settle(lane, await box.claim(lane, 3), Success())
    await until(box.pending, lambda count: count == 0)
    await lane.stop()
    left = {key.decode() for key in await box.redis.keys("*")}
    assert not [key for key in left if key.startswith("{")], "side keys of lanes"


@pytest.mark.parametrize(
    ("message", "recorded"),
    [("half of \udcff a character", "half of ÿ a character"), ("x" * 1_000_000, "x" * 4095 + "…"), ("", "")],
    ids=["half", "long", "empty"],
)
async def test_whatever_a_handler_raises_can_be_settled(box: Rig, message: str, recorded: str) -> None:
    job_id = await box.submit(1)
    lane = await box.lane()
    (claim,) = await box.claim(lane, 1)
    settled = await lane.settle(claim, Failure("DOWNLOAD_HTTP_404", message))
    assert settled.outcome == "failed"
    record = await box.ledger.get(job_id)
    assert record is not None
    assert record.error_message == recorded
