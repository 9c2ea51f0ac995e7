"""What becomes of a file job when its run has ended: completed, tried again in time, dead, or given back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from lane_rig import until
from list_rig import NEVER, PASSING, ListRig, payload, rig, settings

from kernel.queue.work.types import Failure, Success
from kernel.redis import keys
from kernel.telemetry import metrics


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server)) as opened:
        yield opened


async def _now(box: ListRig) -> int:
    return await box.clients.now_ms()


@pytest.mark.req("R002-completion.01", "R002-completion.02")
async def test_what_is_done_goes_onto_the_completed_list_as_it_was(box: ListRig) -> None:
    jobs = await box.fill(box.high, 3)
    lane = await box.lane()
    claims = await lane.claim(8, 0)
    assert await box.settle(lane, claims, Success()) == ["completed"] * 3
    assert await box.list(box.names.completed) == jobs[::-1]
    assert await box.held("w1") == []


@pytest.mark.req("R002-completion.03")
async def test_the_standing_key_outlives_every_job_and_goes_when_the_worker_stops(box: ListRig) -> None:
    await box.fill(box.high, 1)
    lane = await box.lane()
    await box.settle(lane, await lane.claim(1, 0), Success())
    assert await box.redis.exists(box.names.heartbeat("w1")) == 1
    await lane.stop()
    left = {key.decode() for key in await box.redis.keys("jobqueue:*")}
    assert left == {box.names.completed}, "nothing else is left of it"


@pytest.mark.req("R002-completion.04", "R002-completion.05", "R002-completion.06")
@pytest.mark.req("R002-config.16", "R002-config.17", "R002-config.18")
@pytest.mark.fault(26)
async def test_each_retry_waits_twice_as_long_up_to_the_longest_and_counts(box: ListRig) -> None:
    worker = box.config.worker
    worker.max_retries = 6
    worker.backoff.base.FromSeconds(100)
    worker.backoff.max.FromSeconds(900)
    (job,) = await box.push(box.low, payload("j1", note="kept 1.50"))
    lane = await box.lane()
    for retry, wait in enumerate([100, 200, 400, 800, 900, 900], start=1):
        (claim,) = await box.claim(lane, 1)
        assert (claim.attempt, claim.file.retries, claim.queue) == (retry - 1, retry - 1, box.low)
        before = await _now(box)
        assert await box.settle(lane, [claim], PASSING) == ["retrying"]
        ((queue, changed, due),) = await box.delayed()
        assert wait * 1000 <= due - before <= wait * 1000 + (await _now(box) - before), "exactly, by the server's clock"
        assert queue == box.low
        assert changed == job.replace(b'"retries": 0', b'"retries": %d' % retry), "only that member has changed"
        assert await box.held("w1") == []
        (member,) = await box.redis.zrange(keys.FILE_DELAYED, 0, -1)
        await box.redis.zadd(keys.FILE_DELAYED, {member: 0})  # its time has come
    (claim,) = await box.claim(lane, 1)
    assert await box.settle(lane, [claim], PASSING) == ["failed"]


@pytest.mark.req("R002-completion.07")
async def test_after_the_last_retry_it_is_a_dead_letter(box: ListRig) -> None:
    await box.push(box.high, payload("j1"))
    lane = await box.lane()
    outcomes: list[str] = []
    while not outcomes or outcomes[-1] == "retrying":
        outcomes += await box.settle(lane, await box.claim(lane, 1), PASSING)
    assert outcomes == ["retrying"] * 3 + ["failed"]
    (letter,) = [json.loads(one) for one in await box.list(box.names.dead_letters)]
    assert letter["retries"] == 4
    assert letter["failure"] == {"code": "STORAGE_UNAVAILABLE", "message": "the store is away"}
    assert letter["failed_at"].endswith("Z")
    assert (letter["id"], letter["mine"]) == ("j1", [1.5, {}])
    assert await box.held("w1") == []
    assert await box.delayed() == []


async def test_what_no_retry_can_cure_is_dead_at_once(box: ListRig) -> None:
    await box.fill(box.high, 1)
    lane = await box.lane()
    assert await box.settle(lane, await lane.claim(1, 0), NEVER) == ["failed"]
    (letter,) = [json.loads(one) for one in await box.list(box.names.dead_letters)]
    assert letter["failure"]["code"] == "VALIDATION_FILE_OUTSIDE"


@pytest.mark.parametrize("retries", [0, 1, 3, 7, 2**53])
async def test_the_retries_that_a_job_brings_count(box: ListRig, retries: int) -> None:
    await box.push(box.high, payload(retries=retries))
    lane = await box.lane()
    (outcome,) = await box.settle(lane, await lane.claim(1, 0), PASSING)
    assert outcome == ("retrying" if retries < 3 else "failed")


async def test_a_deferral_costs_no_attempt_and_changes_no_byte(box: ListRig) -> None:
    (job,) = await box.push(box.high, payload(retries=3))
    lane = await box.lane()
    before = await _now(box)
    deferral = Failure("STORAGE_UNAVAILABLE", "away", retry_after=70, counts=False)
    assert await box.settle(lane, await lane.claim(1, 0), deferral) == ["deferred"]
    ((_, same, due),) = await box.delayed()
    assert same == job
    assert 70_000 <= due - before <= 70_000 * 1.25 + (await _now(box) - before)


async def test_a_failure_waits_as_long_as_it_was_told_to(box: ListRig) -> None:
    await box.fill(box.high, 1)
    lane = await box.lane()
    before = await _now(box)
    await box.settle(lane, await lane.claim(1, 0), Failure("STORAGE_UNAVAILABLE", "away", retry_after=50))
    ((_, _, due),) = await box.delayed()
    assert due - before >= 50_000


@pytest.mark.fault(51)
async def test_what_is_due_comes_back_while_nothing_else_happens(box: ListRig) -> None:
    """By a timer: nobody claims, pushes or settles meanwhile, and the worker that parked it is gone."""
    box.config.worker.backoff.base.FromSeconds(1)
    box.config.worker.backoff.max.FromSeconds(1)
    await box.fill(box.low, 1)
    first = await box.lane("w1")
    await box.settle(first, await first.claim(1, 0), PASSING)
    await box.die(first)
    await box.lane("w2")
    await until(lambda: box.redis.llen(box.low), lambda count: count == 1)
    assert await box.delayed() == []


async def test_identical_jobs_wait_as_two(box: ListRig) -> None:
    same = payload("twin")
    await box.push(box.high, same, same)
    box.config.worker.backoff.base.FromSeconds(100)
    lane = await box.lane()
    assert await box.settle(lane, await lane.claim(2, 0), PASSING) == ["retrying"] * 2
    assert len(await box.delayed()) == 2


@pytest.mark.parametrize("queue", ["jobqueue:with|bar", "jobqueue:gone|away"])
async def test_a_queue_may_have_any_name_and_may_be_configured_no_more(box: ListRig, queue: str) -> None:
    """What waits for a queue that is none of ours any more goes to the lowest."""
    box.config.worker.queues["high"] = "jobqueue:with|bar"
    lane = await box.lane()
    await box.redis.zadd(keys.FILE_DELAYED, {f'x|{queue}|{{"id":"a|b","filepath":"/|"}}': 1})
    (claim,) = await box.claim(lane, 1)
    if queue == "jobqueue:with|bar":
        assert (claim.queue, claim.payload) == (queue, b'{"id":"a|b","filepath":"/|"}')
        assert await box.settle(lane, [claim], PASSING) == ["retrying"]
        (again,) = await box.claim(lane, 1)
        assert again.queue == queue
    else:
        assert claim.queue == box.low


async def test_a_message_is_cut_and_made_writable(box: ListRig) -> None:
    await box.fill(box.high, 1)
    lane = await box.lane()
    await box.settle(lane, await lane.claim(1, 0), Failure("VALIDATION_TASK", "\ud800" + "x" * 9000))
    (letter,) = [json.loads(one) for one in await box.list(box.names.dead_letters)]
    assert letter["failure"]["message"] == r"\ud800" + "x" * 4089 + "…"


async def test_what_is_given_back_is_the_next_of_its_queue_and_unchanged(box: ListRig) -> None:
    jobs = await box.fill(box.high, 3)
    low = await box.fill(box.low, 1)
    lane = await box.lane()
    claims = await lane.claim(2, 0)
    await lane.give_back(claims)
    assert sorted((await box.list(box.high))[-2:]) == sorted(jobs[:2])
    assert await box.held("w1") == []
    other = await box.lane("w2")
    again = await other.claim(3, 0)
    assert {claim.payload for claim in again} == {*jobs}
    assert {claim.attempt for claim in again} == {0}
    assert await box.list(box.low) == low


async def test_a_worker_that_stops_leaves_nothing_behind(box: ListRig) -> None:
    jobs = await box.fill(box.high, 4)
    lane = await box.lane()
    claims = await lane.claim(3, 0)
    settling = lane.settle(claims[0], Success())
    await lane.stop()
    assert (await settling).outcome == "completed"
    assert sorted(await box.list(box.high)) == sorted(jobs[1:])
    assert await box.list(box.names.completed) == [jobs[0]]
    assert await box.held("w1") == []
    assert await box.redis.zscore(keys.FILE_WORKERS, "w1") is None


async def test_a_destination_that_is_no_list_is_tried_until_it_is_one(box: ListRig) -> None:
    """Nothing is lost and nothing is swallowed meanwhile, and neighbours are settled."""
    await box.redis.set(box.names.completed, "not a list")
    jobs = await box.fill(box.high, 2)
    lane = await box.lane()
    done, failed = await lane.claim(2, 0)
    waiting = lane.settle(done, Success())
    assert await box.settle(lane, [failed], NEVER) == ["failed"]
    assert await box.held("w1") == [jobs[0]]
    assert not waiting.done()
    await box.redis.delete(box.names.completed)
    assert (await waiting).outcome == "completed"
    assert await box.list(box.names.completed) == [jobs[0]]


def _value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.req("R002-metrics.03", "R002-metrics.04", "R002-metrics.05", "R002-metrics.07", "R002-metrics.08")
async def test_the_counters_of_the_seed_tell_what_became_of_each_queue(box: ListRig) -> None:
    metrics.configure([], box.names.queues)
    names = ["consumed", "completed", "retried", "dead_letter"]

    def counts(queue: str) -> list[float]:
        reasons = [_value("jobs_failed_total", queue=queue, reason=reason) for reason in ("storage", "validation")]
        return [*(_value(f"jobs_{name}_total", queue=queue) for name in names), *reasons]

    before = [counts(queue) for queue in (box.high, box.low)]
    await box.fill(box.high, 3)
    await box.push(box.low, b"junk")
    lane = await box.lane()
    one, two, three = await lane.claim(3, 0)
    await box.settle(lane, [one], Success())
    await box.settle(lane, [two], NEVER)
    await box.settle(lane, [three], PASSING)
    deferral = Failure("STORAGE_UNAVAILABLE", "away", retry_after=60, counts=False)
    await box.settle(lane, await box.claim(lane, 1), deferral)  # the third again
    await box.nothing(lane)
    await until(lambda: box.redis.llen(box.names.dead_letters), lambda count: count == 2)
    await until(lambda: box.redis.llen(box.names.processing("w1")), lambda count: count == 0)
    await lane._settling.flush()
    after = [counts(queue) for queue in (box.high, box.low)]
    changed = [[round(now - was) for was, now in zip(*both, strict=True)] for both in zip(before, after, strict=True)]
    assert changed == [[4, 1, 1, 1, 1, 1], [1, 0, 0, 1, 0, 1]]
