"""The settings of the connections to Redis do what they say."""

import asyncio
import socket

import pytest
from lane_rig import settings
from redis.exceptions import TimeoutError as RedisTimeoutError

from fetchbox.config.v1.config_pb2 import Redis
from kernel.errors import FetchboxError
from kernel.redis.clients import RedisClients
from kernel.redis.connection import PlainConnection


async def _connections(clients: RedisClients) -> int:
    return len(await clients.commands.client_list())


@pytest.mark.req("R002-config.05", "R002-config.06", "R002-config.07")
async def test_commands_go_to_the_database_of_the_user(redis_server: str) -> None:
    config = settings(redis_server).redis
    admin = await RedisClients.open(config)
    await admin.commands.execute_command("ACL", "SETUSER", "ada", "on", ">word", "~*", "&*", "+@all")
    config.username, config.password, config.db = "ada", "word", 3
    clients = await RedisClients.open(config)
    await clients.commands.set("k", "v")
    assert await clients.commands.execute_command("ACL", "WHOAMI") == b"ada"
    assert not await admin.commands.exists("k")
    assert (await admin.commands.info("keyspace"))["db3"]["keys"] == 1
    await admin.commands.execute_command("ACL", "DELUSER", "ada")
    await clients.close()
    await admin.close()


def _patient(addr: str) -> Redis:
    config = settings(addr).redis
    for each in (config.dial_timeout, config.read_timeout, config.write_timeout):
        each.FromSeconds(600)
    config.min_idle_conns = config.max_retries = 0
    return config


@pytest.mark.req("R002-config.10")
async def test_a_server_that_does_not_greet_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = _patient("{}:{}".format(*silent.getsockname()))
        config.dial_timeout.FromMilliseconds(100)
        clients = RedisClients(config)
        async with asyncio.timeout(30):
            with pytest.raises(FetchboxError, match="does not answer"):
                await clients.pipe("test")
        await clients.close()


@pytest.mark.req("R002-config.11")
async def test_a_reply_that_does_not_come_is_given_up_in_time(redis_server: str) -> None:
    config = _patient(redis_server)
    config.read_timeout.FromMilliseconds(100)
    clients = await RedisClients.open(config)
    async with asyncio.timeout(30):
        with pytest.raises(FetchboxError, match="does not answer"):
            await clients.commands.execute_command("BLPOP", "nothing", 0)
    await clients.close()


@pytest.mark.req("R002-config.08", "R002-config.09")
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


@pytest.mark.req("R002-config.12")
async def test_a_write_that_nobody_takes_ends_with_the_write_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host, port = deaf.getsockname()
        connection = PlainConnection(write_timeout=0.1, host=host, port=port, socket_timeout=60, driver_info=None)
        async with asyncio.timeout(10):
            with pytest.raises(RedisTimeoutError, match="writing"):
                await connection.send_packed_command(b"x" * (64 << 20))
        assert not connection.is_connected
