"""The lists that only grow are capped by count and by age; queues are sampled (contracts, Priority lists)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from reaper_rig import HIGH, LOW, Fleet, job, settings

from kernel.queue.files.keeper import ListKeeper
from kernel.queue.files.sampler import QueueSampler, waiting_ms
from kernel.queue.labels import configure_labels
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry.metrics import REGISTRY
from tests.examples import most

HOUR = 3_600_000


@pytest.fixture
async def fleet(redis_server: str) -> AsyncIterator[Fleet]:
    """Both lists are kept for 64 hours, so that they are marked once an hour."""
    config = settings(redis_server)
    for keep in (config.worker.completed_keep, config.worker.dead_letter_keep):
        keep.max_age.FromMilliseconds(64 * HOUR)
    configure_labels(config)
    clients = await RedisClients.open(config.redis)
    yield Fleet(config, clients)
    await clients.close()


async def _pass(fleet: Fleet, hours: float) -> None:
    """So much time goes by: for the marks, it is they that get older."""
    for name in fleet.names.all:
        marks = await fleet.redis.zrange(keys.file_marks(name), 0, -1, withscores=True)
        for mark, score in marks:
            if mark != b"removed":
                await fleet.redis.zadd(keys.file_marks(name), {mark: score - hours * HOUR})


@pytest.mark.req("R002-config.23", "R002-config.24")
@pytest.mark.fault(46, 47)
async def test_the_newest_are_kept_up_to_the_count(fleet: Fleet) -> None:
    done, letters = fleet.names.completed, fleet.names.dead_letters
    fleet.config.worker.completed_keep.max_count = 10
    await fleet.redis.lpush(done, *(str(number) for number in range(3000)))
    await fleet.redis.lpush(letters, *(str(number) for number in range(20)))
    assert await ListKeeper(fleet.clients, fleet.config).run() == 2990
    assert await fleet.items(done) == [str(number).encode() for number in range(2999, 2989, -1)]
    assert await fleet.redis.llen(letters) == 20


async def test_what_is_too_old_goes_and_nothing_else(fleet: Fleet) -> None:
    done, keeper = fleet.names.completed, ListKeeper(fleet.clients, fleet.config)
    for day in range(5):
        await fleet.redis.lpush(done, *(f"{day}-{number}" for number in range(700)))
        assert await keeper.run() == 0
        await _pass(fleet, 15.5)
    # The first are 77.5 hours old, the second 62.
    assert await keeper.run() == 700
    assert await fleet.redis.lindex(done, -1) == b"1-0"
    await _pass(fleet, 3)
    assert await keeper.run() == 700
    assert await keeper.run() == 0
    await _pass(fleet, 100)
    assert await keeper.run() == 2100
    assert await fleet.redis.exists(done) == 0
    await keeper.run()
    assert await fleet.redis.exists(keys.file_marks(done)) == 0


async def test_a_busy_list_has_few_marks(fleet: Fleet) -> None:
    done, keeper = fleet.names.completed, ListKeeper(fleet.clients, fleet.config)
    for number in range(260):  # half an hour each: twice as long as anything is kept
        await fleet.redis.lpush(done, str(number))
        await keeper.run()
        await _pass(fleet, 0.5)
    assert await fleet.redis.zcard(keys.file_marks(done)) <= 66
    assert 128 <= await fleet.redis.llen(done) <= 132


async def test_letters_that_somebody_took_away_are_not_made_up_for_by_newer_ones(fleet: Fleet) -> None:
    letters, keeper = fleet.names.dead_letters, ListKeeper(fleet.clients, fleet.config)
    await fleet.redis.lpush(letters, *(f"old-{number}" for number in range(10)))
    await keeper.run()
    await fleet.redis.ltrim(letters, 0, 3)
    await fleet.redis.lpush(letters, *(f"new-{number}" for number in range(10)))
    await _pass(fleet, 65)
    assert await keeper.run() == 0, "nobody can tell the old from the new any more"
    await _pass(fleet, 65)
    assert await keeper.run() == 14, "one age later they all are old"


async def test_time_that_goes_back_removes_nothing(fleet: Fleet) -> None:
    letters, keeper = fleet.names.dead_letters, ListKeeper(fleet.clients, fleet.config)
    await fleet.redis.lpush(letters, "a")
    await keeper.run()
    await _pass(fleet, -1000)
    assert await keeper.run() == 0
    await _pass(fleet, 65)
    assert await keeper.run() == 1


async def test_a_key_that_is_no_list_does_not_keep_the_other_from_its_care(fleet: Fleet) -> None:
    fleet.config.worker.dead_letter_keep.max_count = 1
    await fleet.redis.set(fleet.names.completed, "a string")
    await fleet.redis.lpush(fleet.names.dead_letters, "a", "b")
    assert await ListKeeper(fleet.clients, fleet.config).run() == 1


step = st.tuples(st.sampled_from(["push", "take oldest", "take newest", "keep", "hour"]), st.integers(1, 40))


@given(steps=st.lists(step, max_size=30), longest=st.integers(1, 60))
@examples(max_examples=most(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_entry_goes_before_its_time_unless_there_are_too_many(
    redis_server: str, steps: list[tuple[str, int]], longest: int
) -> None:
    asyncio.run(_check(redis_server, steps, longest))


async def _check(addr: str, steps: list[tuple[str, int]], longest: int) -> None:
    config = settings(addr)
    config.worker.completed_keep.max_age.FromMilliseconds(64 * HOUR)
    config.worker.completed_keep.max_count = longest
    clients = await RedisClients.open(config.redis)
    fleet, keeper = Fleet(config, clients), ListKeeper(clients, config)
    name, hour, pushed = fleet.names.completed, 0, 0
    born: dict[bytes, int] = {}
    try:
        await clients.commands.flushall()
        for kind, count in steps:
            if kind == "push":
                for _ in range(count):
                    pushed += 1
                    born[str(pushed).encode()] = hour
                    await clients.commands.lpush(name, str(pushed))
            elif kind.startswith("take"):
                end = "RPOP" if kind == "take oldest" else "LPOP"
                await clients.commands.execute_command(end, name, min(count, 5))
            elif kind == "hour":
                hour += count
                await _pass(fleet, count)
            else:
                before = await fleet.items(name)
                await keeper.run()
                after = await fleet.items(name)
                assert after == before[: len(after)], "the oldest go first"
                assert len(after) <= longest
                early = [entry for entry in before[len(after) : longest] if hour - born[entry] < 64]
                assert not early
    finally:
        await clients.close()


@pytest.mark.req("R002-metrics.10")
async def test_the_sampler_shows_lengths_and_how_long_the_oldest_has_waited(fleet: Fleet) -> None:
    made = datetime.now(UTC) - timedelta(seconds=90)
    await fleet.redis.lpush(HIGH, job("old", creation_time=made.isoformat()), job("new", creation_time=""))
    await fleet.redis.lpush(fleet.names.dead_letters, "x", "y", "z")
    await fleet.redis.set(LOW, "a string")
    await fleet.redis.zadd(keys.FILE_DELAYED, {"1|q|j": 1, "2|q|j": 2})
    await fleet.redis.xadd(keys.QUEUE, {"job_id": "a"})
    for partition in range(3):
        await fleet.redis.xadd(keys.stream(keys.TASKS, partition), {"payload": b""}, id="1000-0")
    await QueueSampler(fleet.clients, fleet.config).run()
    assert _length(HIGH) == 2
    assert _length(LOW) == 0
    assert _length(fleet.names.completed) == 0
    assert _length(fleet.names.dead_letters) == 3
    assert _length(keys.QUEUE) == 1
    assert _length(keys.TASKS) == 3
    assert REGISTRY.get_sample_value("fetchbox_delayed_file_jobs") == 2
    assert 90 <= _waiting(HIGH) < 200
    assert _waiting(LOW) == 0
    assert _waiting(keys.TASKS) > 1_000_000
    await fleet.redis.delete(HIGH)
    await QueueSampler(fleet.clients, fleet.config).run()
    assert _length(HIGH) == _waiting(HIGH) == 0


@pytest.mark.parametrize(
    ("payload", "age"),
    [
        (job("a", creation_time="1970-01-01T00:00:01.123456789Z"), 8877),
        (job("a", creation_time="1970-01-01T01:00:01+01:00"), 9000),
        (job("a", creation_time="1970-01-01T00:00:02"), 8000),
        (job("a", creation_time="1970-01-01T00:00:20Z"), 0),
        (job("a", creation_time="yesterday"), 0),
        (job("a", creation_time=5), 0),
        (job("a"), 0),
        (b"[]", 0),
        (b"garbage", 0),
        (None, 0),
    ],
    ids=["nanoseconds", "zone", "no zone", "future", "words", "number", "none", "array", "garbage", "empty"],
)
def test_how_long_a_job_has_waited_is_read_from_its_creation_time(payload: bytes | None, age: int) -> None:
    assert waiting_ms(payload, 10_000) == age


def _length(queue: str) -> float | None:
    return REGISTRY.get_sample_value("queue_length", {"queue": queue})


def _waiting(queue: str) -> float:
    found = REGISTRY.get_sample_value("fetchbox_queue_oldest_waiting_seconds", {"queue": queue})
    assert found is not None
    return found
