"""File jobs whose next attempt is due go back onto their queues.

A timer in every worker: it does not wait for traffic, and while it knows of nothing it looks once a second. Any number
of workers may do it at once, since one script looks and moves.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.redis import keys, scripts
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import PipeLost
from kernel.service.service import Loop
from kernel.telemetry.logs import get_logger

_BATCH = 500
_TICK = 1.0
_log = get_logger(__name__)


class Promoter(Loop):
    """The timer of one worker."""

    def __init__(self, link: Link, clock: Clock, names: ListNames, suspects: Callable[[int], None]) -> None:
        """`suspects` is told how many jobs wait to be run alone."""
        super().__init__("lists.promoter")
        self._suspects = suspects
        self._link = link
        self._clock = clock
        self._call = command(scripts.FILE_DUE, [keys.FILE_DELAYED, keys.FILE_SUSPECTS, *names.queues], [_BATCH])
        self._hinted = math.inf
        self._sooner = asyncio.Event()

    def hint(self, wait: float) -> None:
        """Something will be due in so many seconds."""
        self._hinted = min(self._hinted, self._clock.monotonic() + wait)
        self._sooner.set()

    async def run(self) -> None:
        """One look after the other."""
        while True:
            await self._sleep(self._clock.monotonic() + await self.promote())

    async def promote(self) -> float:
        """Puts back what is due; seconds until the next look."""
        try:
            (reply,) = await self._link.run([self._call])
        except PipeLost as lost:
            _log.warn("promoter_lost", error=str(lost))
            return _TICK
        if is_error(reply):
            _log.error("promoter_refused", error=str(reply))
            return _TICK
        moved, wait_ms, suspects = reply
        self._suspects(suspects)
        if moved == _BATCH:
            return 0.0
        return min(_TICK, wait_ms / 1000) if wait_ms >= 0 else _TICK

    async def _sleep(self, until: float) -> None:
        """Sleeps until then, or until what a hint said is due."""
        while (wait := min(until, self._hinted) - self._clock.monotonic()) > 0:
            self._sooner.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sooner.wait(), wait)
        if self._hinted <= self._clock.monotonic():
            self._hinted = math.inf
