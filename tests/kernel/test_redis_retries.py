"""Reads outlive a restart of the server; writes are never repeated behind the caller's back."""

from pathlib import Path

import pytest

from cli.embedded.valkey import Valkey
from kernel.config.loading import defaults
from kernel.errors import FetchboxError
from kernel.redis.clients import RedisClients


@pytest.fixture
def own_server(tmp_path: Path):
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def clients(own_server: Valkey):
    config = defaults().redis
    config.addr = own_server.addr
    opened = await RedisClients.open(config)
    yield opened
    await opened.close()


async def _use_many_connections(clients: RedisClients, count: int) -> None:
    """Leaves `count` idle connections in the pool, all of which a restart makes stale."""
    pool = clients.commands.connection_pool
    taken = [await pool.get_connection() for _ in range(count)]
    for connection in taken:
        await pool.release(connection)


async def test_reads_and_pipelines_of_reads_outlive_a_restart(own_server: Valkey, clients: RedisClients) -> None:
    await clients.commands.hset("h", "a", "1")
    await _use_many_connections(clients, 2)
    own_server.restart()
    assert await clients.commands.hget("h", "a") == b"1"
    await _use_many_connections(clients, 2)
    own_server.restart()
    async with clients.commands.pipeline(transaction=False) as pipeline:
        pipeline.hgetall("h")
        pipeline.exists("h")
        assert await pipeline.execute() == [{b"a": b"1"}, 1]


async def test_a_read_by_its_name_in_bytes_is_answered_as_redis_sends_it_and_repeated_too(
    own_server: Valkey, clients: RedisClients
) -> None:
    await clients.commands.execute_command("XADD", "s", "5-1", "name", "\xff")
    read, sent = (b"XRANGE", "s", "-", "+"), [[b"5-1", [b"name", "\xff".encode()]]]
    await _use_many_connections(clients, 2)
    own_server.restart()
    assert await clients.commands.execute_command(*read) == sent
    await _use_many_connections(clients, 2)
    own_server.restart()
    async with clients.commands.pipeline(transaction=True) as pipeline:
        pipeline.execute_command(*read)
        assert await pipeline.execute() == [sent]


async def test_a_write_is_not_repeated(own_server: Valkey, clients: RedisClients) -> None:
    await _use_many_connections(clients, 1)
    own_server.stop()
    with pytest.raises(FetchboxError, match="does not answer"):
        await clients.commands.incr("counter")
    own_server.start()
    assert await clients.commands.exists("counter") == 0


async def test_a_client_with_a_connection_of_its_own_tells_of_an_outage_in_our_words(
    own_server: Valkey, clients: RedisClients
) -> None:
    own_server.stop()
    client = clients.blocking.client()
    with pytest.raises(FetchboxError, match="does not answer"):
        await client.initialize()
    await client.aclose()
