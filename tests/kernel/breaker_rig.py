"""Breakers for tests: small terms, and a book whose server tells the time that the test has set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fetchbox.config.v1.config_pb2 import CircuitBreaker, Config
from kernel.breakers import Breakers
from kernel.breakers.book import Book
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.redis import scripts
from kernel.redis.clients import RedisClients
from kernel.redis.pipe import Command

TIME = "test:time"
_OF_SHA = {script.sha: script for script in scripts.ALL}


def config_of(addr: str, *, cooldown: float = 30.0, window: float = 60.0, samples: int = 4) -> Config:
    config = defaults()
    config.redis.addr = addr
    config.redis.max_retries = 0
    config.circuit_breaker.CopyFrom(terms(cooldown=cooldown, window=window, samples=samples))
    return config


def terms(*, cooldown: float = 30.0, window: float = 60.0, samples: int = 4, threshold: float = 0.5) -> CircuitBreaker:
    made = CircuitBreaker(failure_threshold=threshold, min_samples=samples)
    made.cooldown_period.FromMilliseconds(round(cooldown * 1000))
    made.window.FromMilliseconds(round(window * 1000))
    return made


@asynccontextmanager
async def breakers_on(addr: str, *, probe_seconds: float = 10.0, **small: Any) -> AsyncIterator[Breakers]:
    """Those of a process of their own."""
    config = config_of(addr, **small)
    clients = await RedisClients.open(config.redis)
    made = Breakers(clients, config.circuit_breaker, SystemClock(), probe_seconds=probe_seconds)
    try:
        yield made
    finally:
        await made.stop()
        await clients.close()


async def until(met: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Polls until `met`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not await met():
        assert loop.time() < end, "it did not come"
        await asyncio.sleep(0.01)


async def stands(breakers: Breakers, name: str) -> str:
    (state,) = await breakers.states([name])
    return state.state


async def becomes(breakers: Breakers, name: str, state: str) -> None:
    """Waits until the fleet sees it so."""

    async def met() -> bool:
        return await stands(breakers, name) == state

    await until(met)


async def open_up(breakers: Breakers, name: str, failures: int = 4) -> None:
    """Fails often enough, and waits until the breaker is open for all and this process knows it."""
    for _ in range(failures):
        breakers.record(name, ok=False)

    async def met() -> bool:
        return not (await breakers.admit(name)).allowed

    await until(met)


class TimedBook(Book):
    """A book on a server whose time stands still between two steps of the test. What expires there does so never."""

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        return await super()._run([self._timed(command) for command in commands])

    async def set_time(self, ms: int) -> None:
        await super()._run([("DEL", TIME), ("RPUSH", TIME, ms // 1000, ms % 1000 * 1000)])

    @staticmethod
    def _timed(command: Command) -> Command:
        if command[0] == "TIME":
            return ("LRANGE", TIME, 0, -1)
        if command[0] != "EVALSHA":
            return command
        source = _OF_SHA[command[1]].source
        timed = source.replace("redis.call('TIME')", f"redis.call('LRANGE', '{TIME}', 0, -1)")
        assert timed != source
        return ("EVAL", timed, *command[2:])
