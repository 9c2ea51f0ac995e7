"""How far the exporter has come: what several of them note, in any order and again, and for how long it is believed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from kernel.log.exported import Exported
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.examples import most

_HOUR = 3_600_000
_STREAM, _OTHER = keys.stream(keys.LOGS, 0), keys.stream(keys.LOGS, 1)
_NOTES = st.lists(
    st.tuples(st.tuples(st.integers(0, 12), st.integers(0, 12)), st.integers(1, 3)), min_size=1, max_size=8
)


@pytest.fixture
async def clients(config: Config) -> AsyncIterator[RedisClients]:
    clients = await RedisClients.open(config.redis)
    yield clients
    await clients.close()


async def _silent_for(clients: RedisClients, stream: str, ms: int) -> None:
    await clients.commands.hset(keys.cursors(stream), "exporter:seen", str(await clients.now_ms() - ms))


async def test_nobody_exports_what_no_exporter_has_noted(clients: RedisClients) -> None:
    exported = Exported(clients, _HOUR)
    assert await exported.positions([_STREAM, _OTHER]) == {_STREAM: None, _OTHER: None}
    assert await exported.note_many({_STREAM: ("0-0", 1)}) == {_STREAM: ("0-0", 1)}
    assert await exported.positions([_STREAM, _OTHER]) == {_STREAM: "0-0", _OTHER: None}
    assert await exported.positions([]) == {}


async def test_an_exporter_that_is_silent_for_too_long_holds_nothing_until_it_is_back(clients: RedisClients) -> None:
    exported = Exported(clients, _HOUR)
    await exported.note_many({_STREAM: ("7-7", 2)})
    await _silent_for(clients, _STREAM, _HOUR - 60_000)
    assert await exported.positions([_STREAM]) == {_STREAM: "7-7"}
    await _silent_for(clients, _STREAM, _HOUR + 1)
    assert await exported.positions([_STREAM]) == {_STREAM: None}
    standing = await exported.standing([_STREAM, _OTHER])
    assert exported.lapsed(standing.values()) == 1
    known = standing[_STREAM]
    assert known is not None
    assert (known.position, known.epoch) == ("7-7", 2)
    assert _HOUR < known.silent_ms < _HOUR + 60_000
    await exported.note_many({_STREAM: ("7-7", 2)})
    assert await exported.positions([_STREAM]) == {_STREAM: "7-7"}
    assert exported.lapsed((await exported.standing([_STREAM])).values()) == 0


async def test_what_is_denied_does_not_count_and_nothing_else_is(clients: RedisClients) -> None:
    exported = Exported(clients, _HOUR)
    await exported.note_many({_STREAM: ("9-9", 5), _OTHER: ("9-9", 5)})
    for denied in (("9-8", 5), ("9-9", 4)):
        assert (await exported.note_many({_STREAM: ("7-7", 1)}, {_STREAM: denied}))[_STREAM] == ("9-9", 5)
    told = await exported.note_many({_STREAM: ("7-7", 1), _OTHER: ("7-7", 1)}, {_STREAM: ("9-9", 5)})
    assert told == {_STREAM: ("7-7", 1), _OTHER: ("9-9", 5)}
    assert await exported.positions([_STREAM]) == {_STREAM: "7-7"}


async def test_what_is_no_position_holds_nothing_and_is_written_over(clients: RedisClients) -> None:
    exported = Exported(clients, _HOUR)
    cursors = keys.cursors(_STREAM)
    await clients.commands.hset(cursors, mapping={"exporter": "soon", "exporter:epoch": "?", "exporter:seen": "?"})
    assert await exported.positions([_STREAM]) == {_STREAM: None}
    assert await exported.note_many({_STREAM: ("5-1", 1)}) == {_STREAM: ("5-1", 1)}
    assert await exported.positions([_STREAM]) == {_STREAM: "5-1"}


@settings(max_examples=most(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(notes=_NOTES)
def test_the_highest_epoch_counts_and_in_it_the_greatest_position(
    redis_server: str, config: Config, notes: list[tuple[tuple[int, int], int]]
) -> None:
    async def all_at_once() -> tuple[str, int]:
        clients = await RedisClients.open(config.redis)
        try:
            await clients.commands.delete(keys.cursors(_STREAM))
            exported = Exported(clients, _HOUR)
            said = [{_STREAM: (f"{ms}-{seq}", epoch)} for (ms, seq), epoch in notes]
            await asyncio.gather(*(exported.note_many(note) for note in [*said, *said]))
            told = (await exported.note_many({_STREAM: ("0-0", 1)}))[_STREAM]
            assert await exported.positions([_STREAM]) == {_STREAM: told[0]}
            return told
        finally:
            await clients.close()

    config.redis.addr = redis_server
    position, epoch = asyncio.run(all_at_once())
    assert (epoch, parse_id(position)) == max((epoch, place) for place, epoch in notes)
