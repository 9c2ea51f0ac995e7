"""What one worker process takes at a time: requests to one site, and bytes of large bodies in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

BYTES_IN_FLIGHT: Final = 256 * 1024 * 1024
"""Bytes of body that all fetches of a process may hold at once, beside `FREE_BYTES` of each."""
FREE_BYTES: Final = 64 * 1024
"""A body up to this size needs no reservation: slots times this is little."""


class HostBusyError(Exception):
    """No place at the site became free in time."""


class HostSlots:
    """At most so many requests to one site at a time; who comes later waits in order."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._sites: dict[str, _Site] = {}

    async def take(self, site: str, patience: float) -> bool:
        """Takes a place at the site, to be given back by `free`; HostBusyError when none is free in `patience` seconds.

        True when it had to be waited for.
        """
        places = self._sites.get(site)
        if places is None:
            places = self._sites[site] = _Site(self._per_host)
        places.users += 1
        try:
            return await _taken(places.slots, patience)
        except BaseException:
            self._leave(site, places)
            raise

    def free(self, site: str) -> None:
        """Gives the place back."""
        places = self._sites[site]
        places.slots.release()
        self._leave(site, places)

    def _leave(self, site: str, places: _Site) -> None:
        places.users -= 1
        if not places.users:
            del self._sites[site]


class _Site:
    """The places at one site and how many have or want one."""

    __slots__ = ("slots", "users")

    def __init__(self, places: int) -> None:
        self.slots = asyncio.Semaphore(places)
        self.users = 0


async def _taken(slots: asyncio.Semaphore, patience: float) -> bool:
    if not slots.locked():
        await slots.acquire()
        return False
    try:
        async with asyncio.timeout(patience):
            await slots.acquire()
    except TimeoutError as error:
        raise HostBusyError from error
    return True


class ByteBudget:
    """Bytes in flight. One reservation for each body, made once, so that no two can wait for each other."""

    def __init__(self, total: int = BYTES_IN_FLIGHT) -> None:
        self._total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        """The bytes that nobody has reserved."""
        return self._free

    @asynccontextmanager
    async def reserved(self, size: int) -> AsyncIterator[None]:
        """Holds `size` bytes of the budget (all of it where that is less); waits, in order, until they are free."""
        size = min(size, self._total)
        await self._take(size)
        try:
            yield
        finally:
            self._give(size)

    async def _take(self, size: int) -> None:
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._give(size)  # It was our turn just now.
            else:
                self._wake()
            raise

    def _give(self, size: int) -> None:
        self._free += size
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.cancelled():
                if size > self._free:
                    return
                self._free -= size
                turn.set_result(None)
            self._waiting.popleft()
