"""Host gates: one worker closes, all others see it; both implementations alike."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from kernel.breakers.hostgate import HostGates, MemoryHostGates, RedisHostGates
from kernel.clock import SystemClock
from kernel.redis import keys
from kernel.redis.clients import RedisClients


@pytest.fixture
async def redis(config: Config) -> AsyncIterator[RedisClients]:
    clients = await RedisClients.open(config.redis)
    yield clients
    await clients.close()


@pytest.fixture(params=["memory", "redis"])
def gates(request: pytest.FixtureRequest, redis: RedisClients) -> HostGates:
    return (
        MemoryHostGates(SystemClock()) if request.param == "memory" else RedisHostGates(redis.commands, SystemClock())
    )


async def test_closed_for_so_long_and_open_again(gates: HostGates) -> None:
    assert await gates.until("h") == 0
    await gates.close("h", 0.2)
    assert 0 < await gates.until("h") <= 0.2
    assert await gates.until("other") == 0
    await asyncio.sleep(0.25)  # longer than it is closed, by the clock of the server
    assert await gates.until("h") == 0


async def test_a_shorter_wait_does_not_open_it_earlier_and_a_longer_one_keeps_it_closed(gates: HostGates) -> None:
    await gates.close("h", 20)
    await gates.close("h", 1)
    assert 18 < await gates.until("h") <= 20
    await gates.close("h", 100)
    assert 98 < await gates.until("h") <= 100
    await gates.close("g", 0)
    assert await gates.until("g") == 0


async def test_the_fleet_sees_it_and_one_question_serves_all(redis: RedisClients) -> None:
    one, two = (RedisHostGates(redis.commands, SystemClock()) for _ in range(2))
    await redis.commands.config_resetstat()
    assert await asyncio.gather(*(two.until("h") for _ in range(100))) == [0.0] * 100
    before = (await redis.commands.info("commandstats"))["cmdstat_pttl"]["calls"]
    assert before == 1
    await one.close("h", 30)
    await asyncio.sleep(0.03)  # longer than an answer is remembered
    assert 28 < await two.until("h") <= 30
    assert 0 < await redis.commands.pttl(keys.host_gate("h")) <= 30_000


async def test_without_redis_a_worker_goes_by_what_it_knows(config: Config, tmp_path: Path) -> None:
    server = Valkey(tmp_path)
    server.start()
    config.redis.addr = server.addr
    clients = await RedisClients.open(config.redis)
    try:
        gates = RedisHostGates(clients.commands, SystemClock())
        server.stop()
        assert await gates.until("h") == 0
        await gates.close("h", 30)
        assert 28 < await gates.until("h") <= 30
    finally:
        await clients.close()
        server.stop()


async def test_a_cancelled_asker_does_not_take_the_answer_from_others(redis: RedisClients) -> None:
    gates = RedisHostGates(redis.commands, SystemClock())
    first, second = (asyncio.create_task(gates.until("h")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 0
    assert first.cancelled() or first.done()
