"""Retention (time first, then size, never unsettled work), offsets under a clock that stands still, and the gauges."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from kernel.log import offsets
from kernel.log.epochs import Epochs
from kernel.log.offsets import MAX_MS, MAX_SEQ, OffsetOverflowError
from kernel.log.provisioning import provision
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from operator_svc.housekeeping import StreamKeeper
from operator_svc.stream_retention import StreamRetention, stream_bytes

_DAY = 86_400_000
_IDS = st.tuples(st.integers(0, MAX_MS), st.integers(0, MAX_SEQ))


@pytest.fixture
async def clients(config: Config) -> AsyncIterator[RedisClients]:
    clients = await RedisClients.open(config.redis)
    await provision(clients, config)
    yield clients
    await clients.close()


async def _age(clients: RedisClients, stream: str, days: list[float], size: int = 10) -> list[str]:
    """Entries of these ages, oldest first."""
    now = await clients.now_ms()
    ids = [f"{now - int(age * _DAY)}-{n}" for n, age in enumerate(sorted(days, reverse=True))]
    for entry in ids:
        await clients.commands.xadd(stream, {"payload": b"x" * size}, id=entry)
    return ids


async def _left(clients: RedisClients, stream: str) -> list[str]:
    return [entry.decode() for entry, _ in await clients.commands.xrange(stream)]


def _gauge(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"fetchbox_{name}", labels) or 0.0


@pytest.mark.req("R000-3.03", "R000-1.06", "R000-1.07", "R000-1.08")
@pytest.mark.parametrize(("topic", "days"), [("jobs.status", 14), ("jobs.logs", 30), ("jobs.dlq", 90)])
@pytest.mark.fault(32)
async def test_old_entries_go_and_young_ones_stay(clients: RedisClients, config: Config, topic: str, days: int) -> None:
    stream = keys.stream(topic, 1)
    ids = await _age(clients, stream, [days + 40, days + 1, days + 0.01, days - 0.01, 1, 0])
    removed = await StreamRetention(clients, config).enforce()
    assert removed == {"jobs.tasks": 0, "jobs.status": 0, "jobs.logs": 0, "jobs.dlq": 0} | {topic: 3}
    assert await _left(clients, stream) == ids[3:]
    assert (await StreamRetention(clients, config).enforce())[topic] == 0


@pytest.mark.parametrize("topic", [keys.STATUS, keys.LOGS, keys.DLQ])
async def test_an_observer_that_is_gone_for_good_holds_up_nothing(
    clients: RedisClients, config: Config, topic: str
) -> None:
    stream = keys.stream(topic, 0)
    ids = await _age(clients, stream, [130, 120, 1])
    await clients.commands.xgroup_create(stream, "observer", id="0")
    await clients.commands.xreadgroup("observer", "gone", {stream: ">"}, count=1)
    assert (await StreamRetention(clients, config).enforce())[topic] == 2
    assert await _left(clients, stream) == ids[2:]


async def test_a_group_of_others_holds_back_tasks_until_it_is_removed(clients: RedisClients, config: Config) -> None:
    stream, retention = keys.stream(keys.TASKS, 0), StreamRetention(clients, config)
    ids = await _age(clients, stream, [30, 20, 1])
    await clients.commands.xgroup_create(stream, "observer", id="0")
    await clients.commands.xreadgroup("workers", "w", {stream: ">"})
    await clients.commands.xack(stream, "workers", *ids)
    assert (await retention.enforce())[keys.TASKS] == 0
    await clients.commands.xgroup_destroy(stream, "observer")
    assert (await retention.enforce())[keys.TASKS] == 2


@pytest.mark.req("R000-1.05", "R000-3.03")
async def test_an_old_task_goes_only_once_it_is_settled(clients: RedisClients, config: Config) -> None:
    stream, retention = keys.stream(keys.TASKS, 0), StreamRetention(clients, config)
    ids = await _age(clients, stream, [30, 20, 10, 8, 1])
    assert (await retention.enforce())["jobs.tasks"] == 0
    assert await _left(clients, stream) == ids
    await clients.commands.xreadgroup("workers", "w", {stream: ">"}, count=3)
    await clients.commands.xack(stream, "workers", ids[0], ids[2])
    assert (await retention.enforce())["jobs.tasks"] == 1
    assert await _left(clients, stream) == ids[1:]
    await clients.commands.xack(stream, "workers", ids[1])
    assert (await retention.enforce())["jobs.tasks"] == 2
    assert await _left(clients, stream) == ids[3:]
    await clients.commands.xreadgroup("workers", "w", {stream: ">"}, count=10)
    await clients.commands.xack(stream, "workers", *ids[3:])
    await retention.enforce()
    assert await _left(clients, stream) == ids[4:]


@pytest.mark.req("R000-3.04")
async def test_over_its_size_a_topic_loses_its_oldest(clients: RedisClients, config: Config) -> None:
    for partition in range(2):
        await _age(clients, keys.stream(keys.DLQ, partition), [n / 100 for n in range(300)], size=500)
    total = sum([await stream_bytes(clients, keys.stream(keys.DLQ, p)) for p in range(2)])
    config.streams.dlq.max_bytes = total // 3
    before = [await _left(clients, keys.stream(keys.DLQ, p)) for p in range(2)]
    removed = await StreamRetention(clients, config).enforce()
    after = [await _left(clients, keys.stream(keys.DLQ, p)) for p in range(2)]
    assert 300 < removed["jobs.dlq"] < 500
    assert all(old[-len(new) :] == new for old, new in zip(before, after, strict=True))
    assert sum([await stream_bytes(clients, keys.stream(keys.DLQ, p)) for p in range(2)]) < total * 0.45


@pytest.mark.req("R000-3.05")
@pytest.mark.fault(31)
async def test_the_size_cap_never_takes_unsettled_tasks(clients: RedisClients, config: Config) -> None:
    stream = keys.stream(keys.TASKS, 3)
    ids = await _age(clients, stream, [n / 1000 for n in range(100)], size=500)
    config.streams.tasks.max_bytes = 1000
    assert (await StreamRetention(clients, config).enforce())["jobs.tasks"] == 0
    await clients.commands.xreadgroup("workers", "w", {stream: ">"}, count=60)
    await clients.commands.xack(stream, "workers", *ids[:40])
    assert (await StreamRetention(clients, config).enforce())["jobs.tasks"] == 40
    assert await _left(clients, stream) == ids[40:]


@pytest.mark.req("R000-3.05")
async def test_time_dominates_size(clients: RedisClients, config: Config) -> None:
    stream = keys.stream(keys.LOGS, 0)
    ids = await _age(clients, stream, [40, 35, 31, 2, 1])
    assert config.streams.logs.max_bytes > await stream_bytes(clients, stream)
    await StreamRetention(clients, config).enforce()
    assert await _left(clients, stream) == ids[3:]


@pytest.mark.fault(46)
async def test_a_pass_does_a_bounded_piece_of_work(clients: RedisClients, config: Config) -> None:
    stream = keys.stream(keys.LOGS, 0)
    source = "for i = 1, 120000 do redis.call('XADD', KEYS[1], '1000-' .. i, 'p', 'x') end"
    await clients.commands.eval(source, 1, stream)
    removed = [(await StreamRetention(clients, config).enforce())["jobs.logs"] for _ in range(3)]
    assert sum(removed) == 120_000
    assert 0 < removed[0] <= 100_000


@given(_IDS, _IDS)
def test_offsets_order_as_ids_do_and_come_back(one: tuple[int, int], other: tuple[int, int]) -> None:
    ids = [f"{ms}-{seq}" for ms, seq in (one, other)]
    numbers = [offsets.offset(i) for i in ids]
    assert all(0 <= number < 1 << 64 for number in numbers)
    assert (numbers[0] < numbers[1]) == (one < other)
    assert [offsets.entry_id(number) for number in numbers] == ids


@pytest.mark.parametrize("entry", [f"1-{MAX_SEQ + 1}", f"{MAX_MS + 1}-0"])
def test_an_id_that_does_not_fit_is_an_error(entry: str) -> None:
    with pytest.raises(OffsetOverflowError):
        offsets.offset(entry)


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-x", "1-2-3", "\uff11-0", " 1-0"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no stream id"):
        offsets.parse_id(text)


@pytest.mark.parametrize("position", [-1, 1 << 64])
def test_what_is_no_offset_is_refused(position: int) -> None:
    with pytest.raises(ValueError, match="uint64"):
        offsets.entry_id(position)


@given(_IDS.filter(lambda i: i[0] < MAX_MS), st.integers(0, MAX_MS))
def test_the_next_id_rises_and_fits_whatever_the_clock_says(last: tuple[int, int], now: int) -> None:
    following = offsets.next_id(f"{last[0]}-{last[1]}", now)
    assert offsets.parse_id(following) > last
    offsets.offset(following)


async def test_a_clock_that_stands_still_never_breaks_an_offset(clients: RedisClients, config: Config) -> None:
    stream = keys.stream(keys.LOGS, 2)
    ahead = await clients.now_ms() + 3_600_000
    await clients.commands.xadd(stream, {"payload": b""}, id=f"{ahead}-{MAX_SEQ - 10}")
    before = _gauge("offset_epochs_total", topic="jobs.logs")
    await Epochs(clients, config).keep()
    assert _gauge("offset_epochs_total", topic="jobs.logs") == before + 1
    assert 3_500 < _gauge("redis_clock_behind_seconds", topic="jobs.logs") <= 3_600
    ids = [(await clients.commands.xadd(stream, {"payload": b""})).decode() for _ in range(20)]
    numbers = [offsets.offset(i) for i in ids]
    assert numbers == sorted(numbers)
    assert numbers[0] > offsets.offset(f"{ahead}-{MAX_SEQ - 10}")
    await Epochs(clients, config).keep()
    assert _gauge("offset_epochs_total", topic="jobs.logs") == before + 1


async def test_a_healthy_clock_starts_no_epoch(clients: RedisClients, config: Config) -> None:
    before = {t: _gauge("offset_epochs_total", topic=t) for t in keys.TOPICS}
    for _ in range(5):
        await clients.commands.xadd(keys.stream(keys.LOGS, 0), {"payload": b""})
    await Epochs(clients, config).keep()
    assert {t: _gauge("offset_epochs_total", topic=t) for t in keys.TOPICS} == before
    assert _gauge("redis_clock_behind_seconds", topic="jobs.logs") == 0


async def test_the_gauges_show_what_lies_in_the_streams(clients: RedisClients, config: Config) -> None:
    stream = keys.stream(keys.TASKS, 5)
    await _age(clients, stream, [2, 1, 0.5])
    await clients.commands.xreadgroup("workers", "w", {stream: ">"}, count=1)
    await StreamKeeper(clients, config).run()
    assert _gauge("stream_length", topic="jobs.tasks") == 3
    assert _gauge("group_lag", topic="jobs.tasks", group="workers") == 2
    assert _gauge("group_pending", topic="jobs.tasks", group="workers") == 1
    assert abs(_gauge("stream_oldest_age_seconds", topic="jobs.tasks") - 2 * 86_400) < 60
    assert abs(_gauge("queue_oldest_age_seconds") - 2 * 86_400) < 60
    assert _gauge("stream_bytes", topic="jobs.tasks") > 0
    assert _gauge("stream_length", topic="jobs.dlq") == 0
