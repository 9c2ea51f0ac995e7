"""How fast a body must come. Framing is no body: whoever sends only that is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import StreamReader

from kernel.clock import Clock


class TooSlowError(ValueError):
    """A window has ended below the floor."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The slowest body in bytes a second, measured over `window` seconds; 0 means that a body may come at any speed.

    A body that holds memory must bring as much again within `hold_seconds`: else a few slow ones would keep the whole
    budget from all others.
    """

    speed: int
    window: float
    hold_seconds: float = float("inf")

    def speed_of(self, held: int) -> float:
        """The slowest speed of a body that holds so many bytes."""
        return max(self.speed, held / self.hold_seconds) if self.speed else 0


class Pace:
    """Tells a slow server. Only the time spent waiting for the server counts, while nothing comes too."""

    def __init__(self, floor: Floor, clock: Clock, content: StreamReader, held: Callable[[], int]) -> None:
        """`held` tells how many bytes of memory the body takes now."""
        self._floor = floor
        self._clock = clock
        self._content = content
        self._held = held
        self._began: float | None = None
        self._waited = 0.0
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises `TooSlowError` when a window has ended below the floor."""
        self._began = self._clock.monotonic()
        if self._timer is None and self._floor.speed and not self._content.is_eof():
            self._timer = asyncio.get_running_loop().call_later(self._floor.window - self._waited, self._look)
        try:
            piece = await self._content.readany()
        finally:
            self._waited += self._clock.monotonic() - self._began
            self._began = None
        self._bytes += len(piece)
        if piece and self._is_too_slow():
            raise TooSlowError
        return piece

    def close(self) -> None:
        """Looks no more; safe twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_too_slow(self) -> bool:
        """Whether a window has ended below the floor; begins the next one where it has ended."""
        if self._waited < self._floor.window:
            return False
        slow = self._bytes < self._floor.speed_of(self._held()) * self._waited
        self._waited, self._bytes = 0.0, 0
        return slow

    def _look(self) -> None:
        self._timer = None
        if self._began is None:
            return  # Somebody else is waited for; the next read looks again.
        now = self._clock.monotonic()
        self._waited += now - self._began
        self._began = now
        if self._is_too_slow():
            self._content.set_exception(TooSlowError())
            return
        left = max(0.001, self._floor.window - self._waited)
        self._timer = asyncio.get_running_loop().call_later(left, self._look)
