"""No retention of any topic, by time or by size, passes the exporter while it is there."""

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config, Stream
from kernel.log.exported import Exported
from kernel.log.provisioning import provision
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.scripts import SHED, TRIM
from kernel.telemetry import metrics
from operator_svc.stream_retention import StreamRetention
from tests.examples import most

_DAY = 86_400_000
_HOLD = 72 * 3_600_000
_SOURCE = "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], ARGV[2] .. '-' .. i, 'p', 'x') end"


@pytest.fixture
async def clients(config: Config) -> AsyncIterator[RedisClients]:
    clients = await RedisClients.open(config.redis)
    await provision(clients, config)
    yield clients
    await clients.close()


def _stream_of(config: Config, topic: str) -> Stream:
    named: Stream = getattr(config.streams, topic.removeprefix("jobs."))
    return named


async def _settled(clients: RedisClients, topic: str, days: Sequence[float]) -> tuple[str, list[str]]:
    """A partition with entries of these ages, oldest first, all of which are read and settled."""
    stream, now = keys.stream(topic, 0), await clients.now_ms()
    ids = [f"{now - int(age * _DAY)}-{n}" for n, age in enumerate(sorted(days, reverse=True))]
    for entry in ids:
        await clients.commands.xadd(stream, {"payload": b"x" * 100}, id=entry)
    if topic == keys.TASKS:
        await clients.commands.xreadgroup(keys.GROUP_WORKERS, "w", {stream: ">"})
        await clients.commands.xack(stream, keys.GROUP_WORKERS, *ids)
    return stream, ids


async def _left(clients: RedisClients, stream: str) -> list[str]:
    return [entry.decode() for entry, _ in await clients.commands.xrange(stream)]


async def _fall_silent(clients: RedisClients, stream: str, ms: int) -> None:
    await clients.commands.hset(keys.cursors(stream), "exporter:seen", str(await clients.now_ms() - ms))


def _lapsed(topic: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("fetchbox_export_hold_lapsed", {"topic": topic})


@pytest.mark.req("R000-1.05")
@pytest.mark.parametrize("topic", keys.TOPICS)
async def test_what_is_old_waits_for_the_exporter_and_goes_behind_it(
    clients: RedisClients, config: Config, topic: str
) -> None:
    stream, ids = await _settled(clients, topic, [130, 120, 110, 100])
    exported, retention = Exported(clients, _HOLD), StreamRetention(clients, config)
    await exported.note_many({stream: ("0-0", 1)})
    assert (await retention.enforce())[topic] == 0
    await exported.note_many({stream: (ids[2], 1)})
    assert (await retention.enforce())[topic] == 2
    assert await _left(clients, stream) == ids[2:]
    assert (await retention.enforce())[topic] == 0


@pytest.mark.parametrize("topic", keys.TOPICS)
async def test_a_topic_over_its_size_waits_for_the_exporter(clients: RedisClients, config: Config, topic: str) -> None:
    stream, ids = await _settled(clients, topic, [n / 1000 for n in range(600)])
    _stream_of(config, topic).max_bytes = 1000
    exported, retention = Exported(clients, _HOLD), StreamRetention(clients, config)
    await exported.note_many({stream: (ids[150], 1)})
    assert (await retention.enforce())[topic] == 150
    assert await _left(clients, stream) == ids[150:]
    await exported.note_many({stream: (ids[-1], 1)})
    await retention.enforce()
    left = await _left(clients, stream)
    assert len(left) < 50
    assert left == ids[-len(left) :]


@pytest.mark.parametrize("topic", keys.TOPICS)
async def test_one_that_is_silent_for_too_long_holds_up_nothing_and_that_is_told(
    clients: RedisClients, config: Config, topic: str
) -> None:
    stream, ids = await _settled(clients, topic, [130, 120, 110])
    exported, retention = Exported(clients, _HOLD), StreamRetention(clients, config)
    await exported.note_many({stream: (ids[0], 1)})
    await _fall_silent(clients, stream, _HOLD - 60_000)
    await retention.enforce()
    assert await _left(clients, stream) == ids
    assert _lapsed(topic) == 0
    await _fall_silent(clients, stream, _HOLD)
    await retention.enforce()
    assert not await _left(clients, stream)
    assert _lapsed(topic) == 1
    await exported.note_many({stream: (ids[0], 1)})
    await retention.enforce()
    assert _lapsed(topic) == 0


async def test_what_nobody_exports_goes_as_ever(clients: RedisClients, config: Config) -> None:
    stream, ids = await _settled(clients, keys.LOGS, [130, 120, 1])
    await clients.commands.hset(keys.cursors(stream), "exporter", "what is this?")
    assert (await StreamRetention(clients, config).enforce())[keys.LOGS] == 2
    assert await _left(clients, stream) == ids[2:]


async def test_what_an_exporter_lets_go_after_long_goes_in_small_steps(clients: RedisClients, config: Config) -> None:
    """A thousand at once, and the server is busy for no longer than usual."""
    stream, now = keys.stream(keys.TASKS, 0), await clients.now_ms()
    await clients.commands.eval(_SOURCE, 1, stream, 2350, now - 200 * _DAY)
    await clients.commands.execute_command("XGROUP SETID", stream, keys.GROUP_WORKERS, "$")
    steps, args = [], (_DAY, _HOLD, 0, 1000)
    while step := int((await clients.call(TRIM, (stream, keys.cursors(stream)), args))[0]):
        steps.append(step)
    assert sum(steps) == 2350
    assert max(steps) <= 1000
    await clients.commands.eval(_SOURCE, 1, stream, 2350, now - 100 * _DAY)
    await clients.commands.execute_command("XGROUP SETID", stream, keys.GROUP_WORKERS, "$")
    assert (await StreamRetention(clients, config).enforce())[keys.TASKS] == 2350


@pytest.mark.parametrize("topic", [keys.TASKS, keys.LOGS])
async def test_an_exporter_that_was_there_in_the_future_is_gone(
    clients: RedisClients, config: Config, topic: str
) -> None:
    """The clock of Redis was years ahead when the last one said that it was there."""
    stream, ids = await _settled(clients, topic, [130, 120, 1])
    exported = Exported(clients, _HOLD)
    await exported.note_many({stream: (ids[0], 1)})
    await _fall_silent(clients, stream, 60_000 - _HOLD)
    assert (await StreamRetention(clients, config).enforce())[topic] == 0
    await _fall_silent(clients, stream, -_HOLD - 60_000)
    assert await exported.positions([stream]) == {stream: None}
    assert (await StreamRetention(clients, config).enforce())[topic] == 2
    assert await _left(clients, stream) == ids[2:]


@example(total=501, keep=0, exported=0, most=1, held=False, by_size=False)
@settings(max_examples=most(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    total=st.integers(0, 700),
    keep=st.integers(0, 700),
    exported=st.integers(0, 700),
    most=st.sampled_from([1, 50, 100, 250, 10_000]),
    held=st.booleans(),
    by_size=st.booleans(),
)
async def test_one_call_removes_the_oldest_and_neither_too_many_nor_any_that_is_held(
    clients: RedisClients, total: int, keep: int, exported: int, most: int, held: bool, by_size: bool
) -> None:
    """Entries 1 to `total` of one day; by age the oldest `total - keep` are too old, by size as many are too many."""
    stream, now = keys.stream(keys.STATUS, 1), await clients.now_ms()
    cursors = keys.cursors(stream)
    await clients.commands.delete(stream, cursors)
    old = max(0, total - keep)
    await clients.commands.eval(_SOURCE, 1, stream, old, now - 2 * _DAY)
    await clients.commands.eval(_SOURCE, 1, stream, total - old, now - _DAY // 2)
    ids = await _left(clients, stream)
    await Exported(clients, _HOLD).note_many({stream: (ids[exported - 1] if 0 < exported <= total else "0-0", 1)})
    if not held:
        await _fall_silent(clients, stream, _HOLD)
    args = (10 * _DAY if by_size else _DAY, _HOLD, max(1, keep) if by_size else 0, most)
    removed = 0
    while step := int(await clients.call(SHED, (stream, cursors), args)):
        assert step <= max(most, 500)
        removed += step
    may_go = max(0, total - max(1, keep)) if by_size else old
    if held:
        may_go = min(may_go, exported - 1 if 0 < exported <= total else 0)
    assert removed == may_go
    assert await _left(clients, stream) == ids[removed:]
