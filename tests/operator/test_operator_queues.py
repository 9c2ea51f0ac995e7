"""The priority lists as operators see them, and what they say about health (seed 002)."""

import json
from datetime import UTC, datetime

import pytest

from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.breakers import Breakers
from kernel.clock import SystemClock
from kernel.redis import keys


async def queues(operator) -> pb.ListQueuesResponse:
    return await operator.ListQueues(pb.ListQueuesRequest())


async def part(operator, name: str) -> tuple[str, str]:
    """State and message of a component of the health."""
    report = await operator.GetHealth(pb.GetHealthRequest())
    return next((part.status, part.message) for part in report.components if part.name == name)


async def test_queues_are_listed_in_their_order_with_all_around_them(operator, files):
    high, low = files.names.queues
    await files.push(high, files.job(1))
    await files.push(low, files.job(2, creation_time="2026-01-01T00:00:00.123456789Z"), b"no job")
    await files.push(files.names.completed, files.job(4))
    await files.dead(5)
    await files.dead(6)
    await files.push(keys.FILE_SUSPECTS, files.job(7))
    await files.clients.commands.zadd(keys.FILE_DELAYED, {"a|q|{}": 1, "b|q|{}": 2, "c|q|{}": 3})
    await files.worker("w2", files.job(8), files.job(9), seen_ms_ago=2_000)
    await files.worker("w1", files.job(8), seen_ms_ago=90_000, beats=False)
    await files.push(files.names.processing(keys.solo("w1")), files.job(9))
    answer = await queues(operator)
    first, second = answer.queues
    assert [(one.priority, one.queue, one.length) for one in answer.queues] == [("high", high, 1), ("low", low, 2)]
    assert first.oldest_age_seconds == 0, "it does not say when it was made"
    made = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    now = await files.clients.now_ms() / 1000
    assert second.oldest_age_seconds == pytest.approx(now - made, abs=60)
    assert {one.breaker for one in answer.queues} == {"closed"}
    assert (answer.completed, answer.dead_letters, answer.delayed, answer.suspects) == (1, 2, 3, 1)
    assert [(one.worker_id, one.alive, one.processing) for one in answer.workers] == [("w1", False, 2), ("w2", True, 2)]
    assert 90 <= answer.workers[0].last_seen_seconds < 1000
    assert 2 <= answer.workers[1].last_seen_seconds < 90


async def test_without_anything_all_is_zero(operator):
    answer = await queues(operator)
    assert [(one.length, one.oldest_age_seconds) for one in answer.queues] == [(0, 0), (0, 0)]
    assert not answer.workers
    assert (answer.completed, answer.dead_letters, answer.delayed, answer.suspects) == (0, 0, 0, 0)


async def test_the_breaker_of_a_queue_is_shown_beside_it(operator, files, config):
    config.circuit_breaker.min_samples = 1
    breakers = Breakers(files.clients, config.circuit_breaker, SystemClock())
    breakers.record(f"queue:{files.names.queues[0]}", ok=False)
    await breakers.stop()
    assert [one.breaker for one in (await queues(operator)).queues] == ["open", "closed"]


async def test_the_queues_come_over_rest_with_the_names_of_the_contract(operator, files, rest):
    await files.push(files.names.default, files.job())
    await files.worker("w1", files.job(2))
    status, answer = await rest.get("/operators/queues")
    assert status == 200
    assert answer["queues"][1] == {
        "priority": "low",
        "queue": "jobqueue:low_priority",
        "length": "1",
        "oldest_age_seconds": 0,
        "breaker": "closed",
    }
    (worker,) = answer["workers"]
    assert (worker["worker_id"], worker["alive"], worker["processing"]) == ("w1", True, "1")
    assert answer["dead_letters"] == "0"


async def test_a_key_of_another_kind_degrades_and_holds_up_nothing(operator, files):
    assert await part(operator, "queues") == ("ok", "")
    await files.clients.commands.set(files.names.queues[0], "somebody's")
    await files.push(files.names.default, files.job())
    await files.dead()
    assert [one.length for one in (await queues(operator)).queues] == [0, 1]
    status, message = await part(operator, "queues")
    assert (status, message) == ("degraded", "the Redis key jobqueue:high_priority holds a value of another kind")
    for name in (keys.FILE_WORKERS, keys.FILE_DELAYED, files.names.dead_letters):
        await files.clients.commands.set(name, "somebody's")
    assert (await queues(operator)).dead_letters == 0
    _, message = await part(operator, "queues")
    assert all(name in message for name in (keys.FILE_WORKERS, keys.FILE_DELAYED, files.names.dead_letters))


async def test_jobs_that_nobody_works_on_degrade(operator, files):
    assert await part(operator, "file_workers") == ("ok", "")
    await files.push(files.names.default, files.job(1), files.job(2))
    await files.clients.commands.zadd(keys.FILE_DELAYED, {"a|q|{}": 1})
    status, message = await part(operator, "file_workers")
    assert status == "degraded"
    assert message.startswith("3 file jobs wait and no worker is alive")
    await files.worker("dead", files.job(3), seen_ms_ago=3_600_000, beats=False)
    assert (await part(operator, "file_workers"))[1].startswith("4 file jobs wait")
    await files.worker("w")
    assert await part(operator, "file_workers") == ("ok", "")


async def test_what_a_dead_worker_holds_waits_for_another_one(operator, files):
    await files.worker("dead", files.job(3), seen_ms_ago=3_600_000, beats=False)
    assert (await part(operator, "file_workers"))[0] == "degraded"
    await files.clients.commands.delete(files.names.processing("dead"))
    assert await part(operator, "file_workers") == ("ok", "")


async def test_a_worker_of_others_is_one_between_its_jobs_too(operator, files):
    """Seed 002 lets it delete its heartbeat after each job."""
    await files.push(files.names.default, files.job())
    await files.worker("foreign", beats=False, seen_ms_ago=1_000)
    assert await part(operator, "file_workers") == ("ok", "")
    assert [one.alive for one in (await queues(operator)).workers] == [False]


async def test_ids_that_are_no_text_and_many_workers_are_shown(operator, files):
    now = await files.clients.now_ms()
    await files.clients.commands.zadd(
        keys.FILE_WORKERS, {b"\xff": now, **{f"w{n:03}": now - n - 1 for n in range(600)}}
    )
    workers = (await queues(operator)).workers
    assert len(workers) == 500
    assert [one.worker_id for one in workers] == sorted(one.worker_id for one in workers)
    assert {"w000", "w498", "\ufffd"} <= {one.worker_id for one in workers}
    assert json.dumps([one.worker_id for one in workers])
