"""A task that is cancelled while it talks to Redis ends, wherever in the command it is."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kernel.config.loading import defaults
from kernel.redis.clients import RedisClients


@pytest.fixture
async def clients(redis_server: str) -> AsyncIterator[RedisClients]:
    config = defaults()
    config.redis.addr = redis_server
    opened = await RedisClients.open(config.redis)
    yield opened
    await opened.close()


@pytest.mark.parametrize("steps", range(8))
async def test_no_cancellation_is_lost(clients, steps):
    async def command() -> None:
        await clients.commands.execute_command("XRANGE", "stream", "-", "+")
        await asyncio.sleep(60)

    for _ in range(20):
        task = asyncio.create_task(command())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


async def test_a_connection_that_was_cut_off_gives_no_foreign_reply(clients):
    await clients.commands.execute_command("SET", "a", "1")
    for steps in range(30):
        task = asyncio.create_task(clients.commands.execute_command("GET", "a"))
        for _ in range(steps % 10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await clients.commands.execute_command("ECHO", f"{steps}") == f"{steps}".encode()
