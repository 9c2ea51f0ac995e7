"""Claims of workers elsewhere that wait for task jobs, and the one look-out that all of them share.

What the slots of this process put aside is seen at once; what another process did is seen with the next look, ten
times a second while anybody waits. Where the slots here have not read for a while (they are full, paused or drained),
the look-out reads the queue itself, and says so to the slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from kernel.clock import Clock
from kernel.queue.streams.lending import LendingLane
from kernel.queue.streams.worker import WorkerLane
from kernel.redis.pipe import PipeLost
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

LOOK_SECONDS = 0.1
"""The pause between two looks at what others put aside."""
_NOT_READING_SECONDS = 0.5
"""A lane that reads asks Redis at least this often."""
_AT_ONCE = 64

log = get_logger("worker.waiting")


class Waiting:
    """Wakes whoever waits, the longest first, as many as there are tasks for."""

    def __init__(self, lane: LendingLane, slots: WorkerLane, clock: Clock) -> None:
        """`slots` is the lane of the slots of this process."""
        self._lane = lane
        self._slots = slots
        self._clock = clock
        self._waiters: dict[asyncio.Future[None], Sequence[str]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, tasks: Sequence[str], patience: float) -> None:
        """Returns once there may be something for one of the tasks, and after `patience` seconds at the latest.

        Whoever waits again at once, since another was faster or the task must run alone, is woken by the next look.
        """
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[found] = tasks
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="lending.look-out")
        try:
            await asyncio.wait({found}, timeout=patience)
        finally:
            del self._waiters[found]

    async def read(self, wait: float) -> bool:
        """Reads the queue for `wait` seconds where the slots do not; False where they do."""
        if self._slots.last_poll_age <= _NOT_READING_SECONDS:
            return False
        if await self._lane.put_aside(_AT_ONCE, wait):
            self._slots.look()
        return True

    async def stop(self) -> None:
        """Looks no more. Safe twice."""
        await ended(self._looking)

    async def _look(self) -> None:
        while self._waiters:
            try:
                self._slots.routed.clear()
                self._wake(await self._lane.lying_aside())
                await self._next()
            except PipeLost as lost:
                log.warn("look_out_lost", error=str(lost))
                await self._clock.sleep(LOOK_SECONDS)

    def _wake(self, there: dict[str, int]) -> None:
        for found, tasks in self._waiters.items():
            task = next((task for task in tasks if there.get(task, 0) > 0), None)
            if task is not None and not found.done():
                there[task] -= 1
                found.set_result(None)

    async def _next(self) -> None:
        """Waits for what may have changed something, one pause at the most."""
        if not await self.read(LOOK_SECONDS):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._slots.routed.wait()
