"""Ends a process whose event loop stands still: nothing else can stop a handler that never yields.

A handler that blocks the loop also blocks its own deadline, every cancel, and the signal that asks the process to end,
while the heartbeat's thread keeps the lease. So a thread watches: when a task is over its deadline by a whole lease,
and the loop has not moved for as long, the process ends. What ran in it counts as crashed; a task that does it again
and again is a dead letter in the end (`SYSTEM_CRASH_LOOP`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable

from kernel.clock import Clock
from kernel.queue.work.types import Claim
from kernel.telemetry.logs import get_logger
from worker_svc.slot import Slot

EXIT_CODE = 70
"""`EX_SOFTWARE` of sysexits.h."""

log = get_logger("worker.watchdog")


class Watchdog:
    """A duty of the worker."""

    name = "watchdog"

    def __init__(
        self, running: Iterable[Slot], deadline: Callable[[Claim], float], patience: float, clock: Clock
    ) -> None:
        """`running` are the slots at any time; `patience`, in seconds, is how far a task may be over its deadline."""
        self._running = running
        self._deadline = deadline
        self._patience = patience
        self._clock = clock
        self._moved = clock.monotonic()
        self._ticking: asyncio.TimerHandle | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Begins to watch the loop that this is called in."""
        self._tick(asyncio.get_running_loop())
        self._thread = threading.Thread(target=self._watch, args=(threading.get_ident(),), name="watchdog", daemon=True)
        self._thread.start()

    async def drain(self, grace: float) -> None:
        """Goes on: running work may still hang."""

    async def stop(self) -> None:
        """Ends the watch and its thread; safe twice."""
        self._stopping.set()
        if self._ticking is not None:
            self._ticking.cancel()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._moved = self._clock.monotonic()
        self._ticking = loop.call_later(self._patience / 4, self._tick, loop)

    def _watch(self, thread: int) -> None:
        while not self._stopping.wait(self._patience / 4):
            if self._clock.monotonic() - self._moved > self._patience and (slot := self._overdue()) is not None:
                frame = sys._current_frames().get(thread)
                stack = "".join(traceback.format_stack(frame))
                log.error("worker_stuck", job_id=slot.claim.job_id, resource_id=slot.claim.resource_id, stack=stack)
                os._exit(EXIT_CODE)

    def _overdue(self) -> Slot | None:
        now = self._clock.monotonic()
        for slot in tuple(self._running):  # the loop stands still, so nobody changes it
            if now - slot.since > self._deadline(slot.claim) + self._patience:
                return slot
        return None
