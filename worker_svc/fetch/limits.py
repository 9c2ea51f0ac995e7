"""What one worker process takes at a time of large bodies: bytes in memory. Requests to one site are in `places`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["BYTES_IN_FLIGHT", "FREE_BYTES", "SMALL_BYTES", "BodyHold", "ByteBudget"]

BYTES_IN_FLIGHT: Final = 256 * 1024 * 1024
"""Bytes of body that all fetches of a process may hold at once, beside `FREE_BYTES` of each."""
FREE_BYTES: Final = 64 * 1024
"""A body up to this size needs no reservation: slots times this is little."""
SMALL_BYTES: Final = 1 << 20
"""What holds no more than this is small."""
_RESERVE: Final = 4
"""One in so many bytes of the budget is for what is small: large bodies that come slowly keep no small one waiting."""


class ByteBudget:
    """Bytes in flight: whole reservations of work that knows what it needs, and holds of bodies that grow as they come.

    A body takes as much as it really holds, so that one which comes slowly takes little. What is small comes first, and
    a quarter of the budget is its own. Bodies could then wait for each other, all of them half-way to a part that would
    free them. So one at a time may exceed the budget by its next bytes: the one that waits with the most, which has the
    least way to go.
    """

    def __init__(self, total: int = BYTES_IN_FLIGHT) -> None:
        self._total = total
        self._free = total
        self._waiting: deque[_Turn] = deque()
        self._large: deque[_Turn] = deque()
        self._exceeding: BodyHold | None = None

    @property
    def free(self) -> int:
        """The bytes that nobody has reserved; below zero while the budget is exceeded."""
        return self._free

    @asynccontextmanager
    async def reserved(self, size: int) -> AsyncIterator[None]:
        """Holds `size` bytes of the budget (all of it where that is less); waits, in order, until they are free."""
        size = min(size, self._total)
        await self._take(size, None)
        try:
            yield
        finally:
            self._give(size)

    def hold(self) -> BodyHold:
        """A hold of nothing yet."""
        return BodyHold(self)

    async def _take(self, size: int, hold: BodyHold | None) -> None:
        large = hold is not None and hold.size + size > SMALL_BYTES
        if not self._waiting and not (large and self._large) and size <= self._room(large=large):
            self._free -= size
            return
        turn = _Turn(size, hold, asyncio.get_running_loop().create_future())
        (self._large if large else self._waiting).append(turn)
        self._wake()
        try:
            await turn.come
        except asyncio.CancelledError:
            if not turn.come.cancelled():
                self._give(size)  # It was our turn just now.
            else:
                self._wake()
            raise

    def _give(self, size: int) -> None:
        self._free += size
        self._wake()

    def _back(self, hold: BodyHold) -> None:
        """The hold that exceeds the budget has used its bytes, so that another may."""
        if self._exceeding is hold:
            self._exceeding = None

    def _room(self, *, large: bool) -> int:
        return self._free - (self._total // _RESERVE if large else 0)

    def _wake(self) -> None:
        self._serve(self._waiting, large=False)
        if not self._waiting:
            self._serve(self._large, large=True)
        if self._exceeding is None:
            self._exceed()

    def _serve(self, waiting: deque[_Turn], *, large: bool) -> None:
        """Grants what has room, in order."""
        while waiting:
            turn = waiting[0]
            if not turn.come.cancelled():
                if turn.size > self._room(large=large):
                    return
                self._grant(turn)
            waiting.popleft()

    def _exceed(self) -> None:
        waiting = (*self._waiting, *self._large)
        holding = [turn for turn in waiting if turn.hold is not None and turn.hold.size and not turn.come.done()]
        if holding:
            turn = max(holding, key=lambda turn: turn.hold.size if turn.hold else 0)
            (self._large if turn in self._large else self._waiting).remove(turn)
            self._exceeding = turn.hold
            self._grant(turn)

    def _grant(self, turn: _Turn) -> None:
        self._free -= turn.size
        turn.come.set_result(None)


class BodyHold:
    """What one body holds of a budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size = 0

    async def resize(self, size: int) -> None:
        """Holds `size` bytes from now on; waits until there is room for more, never for less."""
        budget, more = self._budget, size - self.size
        budget._back(self)
        if more > 0:
            await budget._take(more, self)
            self.size = size
        else:
            self.size = size
            budget._give(-more)

    def close(self) -> None:
        """Holds nothing any more; safe twice."""
        self._budget._back(self)
        size, self.size = self.size, 0
        self._budget._give(size)


@dataclass(slots=True, eq=False)
class _Turn:
    """Somebody who waits for bytes."""

    size: int
    hold: BodyHold | None
    come: asyncio.Future[None]
