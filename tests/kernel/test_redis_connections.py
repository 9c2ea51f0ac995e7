"""The settings of the connections to Redis do what they say."""

import asyncio
import socket

import pytest
from lane_rig import settings
from redis.exceptions import TimeoutError as RedisTimeoutError

from kernel.redis import RedisClients
from kernel.redis_connection import PlainConnection


async def _connections(clients: RedisClients) -> int:
    return len(await clients.commands.client_list())


@pytest.mark.parametrize(("wanted", "opened"), [(0, 1), (7, 7), (1000, 12)])
async def test_idle_connections_are_open_from_the_start(
    redis_server: str, wanted: int, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    config = settings(redis_server).redis
    config.pool_size_multiplier, config.min_idle_conns = 3, 0
    before = await RedisClients.open(config)
    config.min_idle_conns = wanted
    clients = await RedisClients.open(config)
    assert await _connections(clients) - 1 == opened
    await clients.close()
    await before.close()


async def test_a_write_that_nobody_takes_ends_with_the_write_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host, port = deaf.getsockname()
        connection = PlainConnection(write_timeout=0.1, host=host, port=port, socket_timeout=60, driver_info=None)
        async with asyncio.timeout(10):
            with pytest.raises(RedisTimeoutError, match="writing"):
                await connection.send_packed_command(b"x" * (64 << 20))
        assert not connection.is_connected
