"""Hosts that the whole fleet leaves alone for a while, because one of them answered `Retry-After`.

Worker A gets a 429 and closes the host's gate in Redis; worker B asks before each request and finds it closed. Asking
is on the hot path of every fetch, so answers are shared: all who ask within 20 ms for the same host use one command.
While Redis does not answer, each worker goes by what it knows itself: politeness is no reason to fail a fetch.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from typing import Final, Protocol

from redis.asyncio import Redis

from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.redis import keys
from kernel.telemetry.logs import get_logger

FRESH_SECONDS: Final = 0.02
"""How long an answer `open` is believed: a gate that another worker closes is seen this much later at most."""
REMEMBERED_HOSTS: Final = 10_000


_log = get_logger("hostgate")


class HostGates(Protocol):
    """Which hosts are closed, fleet-wide."""

    async def until(self, host: str) -> float:
        """Seconds until the host may be asked again; 0 when it may be asked now."""
        ...

    async def close(self, host: str, seconds: float) -> None:
        """Closes the gate for so long. A gate that is closed for longer stays so."""
        ...


class MemoryHostGates:
    """Gates of one process: for tests, and for running without a fleet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed: dict[str, float] = {}

    async def until(self, host: str) -> float:
        """Seconds until the host may be asked again; 0 when it may be asked now."""
        ends = self._closed.get(host)
        if ends is None:
            return 0.0
        remaining = ends - self._clock.monotonic()
        if remaining <= 0:
            del self._closed[host]
        return max(remaining, 0.0)

    async def close(self, host: str, seconds: float) -> None:
        """Closes the gate for so long. A gate that is closed for longer stays so."""
        ends = self._clock.monotonic() + seconds
        self._closed[host] = max(ends, self._closed.get(host, 0.0))


class RedisHostGates:
    """Gates of the fleet: `fetchbox:host:{host}:gate` expires when the host may be asked again."""

    def __init__(self, commands: Redis, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Future[float]] = {}

    async def until(self, host: str) -> float:
        """Seconds until the host may be asked again; 0 when it may be asked now."""
        now = self._clock.monotonic()
        ends, believed = self._known.get(host, (0.0, 0.0))
        if ends > now:
            return ends - now
        if believed > now:
            return 0.0
        asking = self._asking.get(host)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(host))
            self._asking[host] = asking
            asking.add_done_callback(functools.partial(self._answered, host))
        # Shielded: one caller's cancellation must not take the answer from the others.
        return await asyncio.shield(asking)

    def _answered(self, host: str, asking: asyncio.Future[float]) -> None:
        self._asking.pop(host, None)
        if not asking.cancelled():
            asking.exception()  # Seen, even when every caller has gone meanwhile.

    async def _ask(self, host: str) -> float:
        try:
            remaining = max(int(await self._commands.pttl(keys.host_gate(host))), 0) / 1000
        except FetchboxError as error:
            _log.warn("host_gate_unknown", host=host, error=error)
            remaining = max(self._known.get(host, (0.0, 0.0))[0] - self._clock.monotonic(), 0.0)
        self._remember(host, remaining)
        return remaining

    async def close(self, host: str, seconds: float) -> None:
        """Closes the gate for so long. A gate that is closed for longer stays so."""
        milliseconds = int(seconds * 1000)
        if milliseconds <= 0:
            return
        self._remember(host, max(seconds, await self.until(host)))
        key = keys.host_gate(host)
        try:
            async with self._commands.pipeline(transaction=True) as batch:
                batch.set(key, b"1", px=milliseconds, nx=True)
                batch.pexpire(key, milliseconds, gt=True)
                await batch.execute()
        except FetchboxError as error:
            _log.warn("host_gate_not_closed", host=host, error=error)

    def _remember(self, host: str, remaining: float) -> None:
        now = self._clock.monotonic()
        self._known[host] = (now + remaining, now + FRESH_SECONDS)
        self._known.move_to_end(host)
        while len(self._known) > REMEMBERED_HOSTS:
            self._known.popitem(last=False)
