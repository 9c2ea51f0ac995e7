"""Results on their way to Redis: they gather for a moment and leave together, and no worker waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kernel.breakers.book import MOST, Book, BreakerStanding
from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.redis.pipe import Command
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

GATHER_SECONDS: Final = 0.1
"""How long results gather; those of a probe leave at once."""
_PATIENCE_SECONDS: Final = 5.0
"""How long results are kept for a Redis that is away. Older ones would count in the wrong place of the window."""
_PAUSE_SECONDS: Final = 0.1
_log = get_logger("breakers")

Told = Callable[[str, BreakerStanding], None]
"""Called with the name of a breaker and what Redis says of it after a result."""


class BreakerReports:
    """Sends results and verdicts, in the order in which they came."""

    def __init__(self, book: Book, clock: Clock, told: Told) -> None:
        self._book = book
        self._clock = clock
        self._told = told
        self._counts: dict[str, list[int]] = {}
        self._verdicts: list[tuple[str, str, str]] = []
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._silent = False

    def count(self, name: str, *, ok: bool) -> None:
        """One result."""
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts[name] = [0, 0]
        counts[not ok] += 1
        self._begin()

    def verdict(self, name: str, token: str, verdict: str) -> None:
        """What a probe has found: `close`, `open`, or `free` for nothing."""
        self._verdicts.append((name, token, verdict))
        self._urgent.set()
        self._begin()

    async def stop(self) -> None:
        """Sends what there is, once."""
        task, self._task = self._task, None
        await ended(task)
        names, calls = self._taken()
        if calls and not self._silent:
            await self._sent(names, calls)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_all(), name="breakers.reports")

    async def _send_all(self) -> None:
        while self._counts or self._verdicts:
            try:
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._urgent.wait()
            except TimeoutError:
                pass
            names, calls = self._taken()
            for start in range(0, len(calls), MOST):
                await self._send(names[start : start + MOST], calls[start : start + MOST])

    def _taken(self) -> tuple[list[str], list[Command]]:
        self._urgent.clear()
        counts, self._counts = self._counts, {}
        verdicts, self._verdicts = self._verdicts, []
        names = [*counts, *(name for name, _, _ in verdicts)]
        calls = [self._book.result(name, *pair) for name, pair in counts.items()]
        calls += [self._book.verdict(*verdict) for verdict in verdicts]
        return names, calls

    async def _send(self, names: Sequence[str], calls: Sequence[Command]) -> None:
        end = self._clock.monotonic() + _PATIENCE_SECONDS
        while not await self._sent(names, calls):
            if self._clock.monotonic() >= end:
                return
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _sent(self, names: Sequence[str], calls: Sequence[Command]) -> bool:
        try:
            standings = await self._book.tell(calls)
        except FetchboxError as error:
            if not self._silent:
                _log.warn("breakers_not_told", count=len(calls), error=error)
            self._silent = True
            return False
        self._silent = False
        for name, standing in zip(names, standings, strict=True):
            self._told(name, standing)
        return True
