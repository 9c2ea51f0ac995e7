"""Places at a site: so many requests at a time, and so few of the worker's slots waiting for one.

A host that takes its time would else take every slot: its places are held for long, and whoever comes later waits in a
slot of his own. So one waits for as long as his patience lasts, the others only while places change hands. Whoever is
turned away comes back later, and the later the more there are of them.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

STILL_SECONDS: Final = 1.0
"""After so long without a change at a site, one waits for it and nobody else."""
LONGEST_SECONDS: Final = 300.0
"""After which whoever was turned away comes back at the latest."""


class HostBusyError(Exception):
    """No place at the site became free in time; worth another try in `retry_after` seconds."""

    def __init__(self, retry_after: float = 0.0) -> None:
        super().__init__("no place is free")
        self.retry_after = retry_after


class HostSlots:
    """At most so many requests to one site at a time."""

    def __init__(self, per_host: int, rng: random.Random | None = None) -> None:
        self._per_host = per_host
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, no secret
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
            return await self._taken(places, patience)
        except BaseException:
            self._leave(site, places)
            raise

    def free(self, site: str) -> None:
        """Gives the place back."""
        places = self._sites[site]
        places.slots.release()
        places.changed()
        self._leave(site, places)

    async def _taken(self, places: _Site, patience: float) -> bool:
        if not places.slots.locked():
            await places.slots.acquire()
            places.turned = 0
            places.changed()
            return False
        if not await places.wait(patience):
            places.turned += 1
            raise HostBusyError(self._pause(places, patience))
        return True

    def _pause(self, places: _Site, least: float) -> float:
        """About as long as all those take that were turned away, if a place is held for as long as nothing moved."""
        longest = min(places.turned * places.still / self._per_host, LONGEST_SECONDS)
        return least if longest <= least else self._rng.uniform(max(least, longest / 2), longest)

    def _leave(self, site: str, places: _Site) -> None:
        places.users -= 1
        if not places.users:
            del self._sites[site]


class _Site:
    """The places at one site and how many have or want one."""

    __slots__ = ("_moved", "_waits", "slots", "turned", "users")

    def __init__(self, places: int) -> None:
        self.slots = asyncio.Semaphore(places)
        self.users = 0
        self.turned = 0
        """How many were turned away since a place was free."""
        self._waits = False
        self._moved = asyncio.get_running_loop().time()

    def changed(self) -> None:
        """A place was taken or given back."""
        self._moved = asyncio.get_running_loop().time()

    @property
    def still(self) -> float:
        """Seconds since a place was last taken or given back."""
        return asyncio.get_running_loop().time() - self._moved

    async def wait(self, patience: float) -> bool:
        """Waits for a place, and takes it; False when that takes too long."""
        ends = asyncio.get_running_loop().time() + patience
        first = not self._waits
        self._waits = True
        try:
            while (
                until := ends if first else min(ends, self._moved + STILL_SECONDS)
            ) > asyncio.get_running_loop().time():
                if await self._acquired(until):
                    self.changed()
                    return True
            return False
        finally:
            if first:
                self._waits = False

    async def _acquired(self, until: float) -> bool:
        try:
            async with asyncio.timeout_at(until):
                await self.slots.acquire()
        except TimeoutError:
            return False
        return True
