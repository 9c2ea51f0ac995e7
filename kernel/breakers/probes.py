"""The probes that run in this process: while they do, they keep their places, and nobody else probes the same."""

from __future__ import annotations

import asyncio
from typing import Final

from kernel.breakers.book import Book
from kernel.breakers.types import HALF_OPEN
from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

LONGEST_SECONDS: Final = 3600.0
"""A probe that has told nothing for so long is forgotten, so that no fault of ours keeps a breaker half-open."""
_log = get_logger("breakers")


class Probes:
    """Names of breakers and the tokens of their probes. A process that dies renews nothing, which frees the place."""

    def __init__(self, book: Book, clock: Clock, lease_seconds: float) -> None:
        """`lease_seconds`: how long a place is kept without being renewed."""
        self._pause = lease_seconds / 3
        self._book = book
        self._clock = clock
        self._running: dict[str, tuple[str, float]] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, name: str, token: str) -> None:
        """A probe has its place, and keeps it until `end`."""
        self._running[name] = (token, self._clock.monotonic() + LONGEST_SECONDS)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._renew(), name="breakers.probes")

    def end(self, name: str, token: str) -> None:
        """It has been told, or is given up."""
        if name in self._running and self._running[name][0] == token:
            del self._running[name]

    async def stop(self) -> None:
        """Renews nothing more. Safe twice."""
        task, self._task = self._task, None
        await ended(task)

    async def _renew(self) -> None:
        while self._running:
            await self._clock.sleep(self._pause)
            now = self._clock.monotonic()
            self._running = {name: kept for name, kept in self._running.items() if now < kept[1]}
            running = [(name, token) for name, (token, _) in self._running.items()]
            try:
                found = await self._book.tell([self._book.ask(*probe) for probe in running])
            except FetchboxError as error:
                _log.warn("breaker_probe_not_renewed", count=len(running), error=error)
                continue
            for (name, token), standing in zip(running, found, strict=True):
                if standing.state != HALF_OPEN or not standing.value:
                    self.end(name, token)
