"""Breakers while Redis is away, hangs, forgets its data or scripts: nobody is kept from working, and it heals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from breaker_rig import becomes, breakers_on, config_of, open_up, stands, until

from cli.embedded.valkey import Valkey
from kernel.breakers import Breakers
from kernel.errors import FetchboxError
from kernel.redis.clients import RedisClients

NAME = "host:example.org"


@pytest.fixture
def own_server(tmp_path: Path):
    server = Valkey(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def clients(redis_server: str) -> AsyncIterator[RedisClients]:
    opened = await RedisClients.open(config_of(redis_server).redis)
    yield opened
    await opened.close()


async def _allowed(breakers: Breakers) -> bool:
    return (await breakers.admit(NAME)).allowed


async def test_flushall_closes_them_all_and_they_open_anew(redis_server: str, clients: RedisClients) -> None:
    async with breakers_on(redis_server, cooldown=600.0) as one, breakers_on(redis_server, cooldown=600.0) as two:
        await open_up(one, NAME)
        await clients.commands.flushall()
        for each in (one, two):
            await until(lambda each=each: _allowed(each))
        await open_up(two, NAME)
        assert await stands(one, NAME) == "open"


async def test_forgotten_scripts_are_loaded_again(redis_server: str, clients: RedisClients) -> None:
    async with breakers_on(redis_server, cooldown=0.2) as breakers:
        await open_up(breakers, NAME)
        await clients.commands.script_flush()
        await becomes(breakers, NAME, "half_open")
        await clients.commands.script_flush()
        probes = []

        async def probing() -> bool:
            probes.append(await breakers.admit(NAME))
            return bool(probes[-1].probe)

        await until(probing)
        await clients.commands.script_flush()
        breakers.record(NAME, True, probes[-1])
        await becomes(breakers, NAME, "closed")


async def test_killed_connections_cost_no_result(redis_server: str, clients: RedisClients) -> None:
    async with breakers_on(redis_server, cooldown=600.0, samples=40) as breakers:
        for _ in range(40):
            await clients.commands.execute_command("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")
            breakers.record(NAME, ok=False)
            await asyncio.sleep(0.01)
        await becomes(breakers, NAME, "open")


async def test_without_redis_everybody_is_let_through_and_it_heals(own_server: Valkey) -> None:
    async with breakers_on(own_server.addr, cooldown=0.5) as breakers:
        await open_up(breakers, NAME)
        own_server.kill9()
        await until(lambda: _allowed(breakers))
        for _ in range(100):
            breakers.record("host:another", True, await breakers.admit("host:another"))
        with pytest.raises(FetchboxError):
            await breakers.list()
        own_server.restart()
        await becomes(breakers, NAME, "half_open")
        probes = []

        async def probing() -> bool:
            probes.append(await breakers.admit(NAME))
            return bool(probes[-1].probe)

        await until(probing)
        breakers.record(NAME, True, probes[-1])
        await becomes(breakers, NAME, "closed")
        await open_up(breakers, NAME)


async def test_a_process_that_starts_without_redis_lets_everybody_through(own_server: Valkey) -> None:
    async with breakers_on(own_server.addr) as breakers:
        own_server.kill9()
        assert await _allowed(breakers)
        breakers.record(NAME, ok=False)


async def test_a_redis_that_hangs_delays_no_more_than_the_first(own_server: Valkey) -> None:
    async with breakers_on(own_server.addr) as breakers:
        assert await _allowed(breakers)
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            loop = asyncio.get_running_loop()
            began, answers = loop.time(), 0
            while loop.time() < began + 2.5:
                assert await _allowed(breakers)
                answers += 1
                await asyncio.sleep(0.001)
            assert answers > 20
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        await open_up(breakers, NAME)
