"""The producer: puts the files of a directory, and of all below it, onto the priority lists.

1. A scan walks through the whole directory every `scan_interval` (`walk.py`); the watcher hints at what changes between
   (`watcher.py`). A scan is the truth, a hint only saves time.
2. What the globs let through and is no regular, readable file with a name in UTF-8 is reported (`reports.py`).
3. A file that may still be written waits (`settling.py`).
4. What is left goes onto the list of its priority, once, as far as rate and backlog let it (`intake.py`,
   `producer_svc/enqueue.py`). The process remembers nothing that it could lose.
5. After a scan that saw everything, marks of files that have long been gone are dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kernel.clock import Clock
from kernel.service.service import Loop
from kernel.tasks import ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from producer_svc.directory import Directory
from producer_svc.enqueue import LOOK, FileQueue
from producer_svc.found import Found
from producer_svc.intake import Intake
from producer_svc.reports import Reports, ScanOutcome
from producer_svc.settling import FileSettling
from producer_svc.walk import Walk
from producer_svc.watcher import OVERLAP, Watcher

_log = get_logger("producer")
_FIRST_RETRY: Final = 1.0
_LONGEST_RETRY: Final = 30.0


class Producer(Loop):
    """Scans, and looks at what was hinted at; a drain lets the batch that is on its way arrive."""

    def __init__(
        self,
        directory: Directory,
        intake: Intake,
        queue: FileQueue,
        settling: FileSettling,
        watcher: Watcher,
        reports: Reports,
        clock: Clock,
        interval: float,
        ending: asyncio.Event,
    ) -> None:
        super().__init__("producer")
        self._directory = directory
        self._intake = intake
        self._queue = queue
        self._settling = settling
        self._watcher = watcher
        self._reports = reports
        self._clock = clock
        self._interval = interval
        self._ending = ending
        self._complete_at = clock.monotonic()
        self._failures = 0
        metrics.PRODUCER_SCAN_LAG.set_function(lambda: self._clock.monotonic() - self._complete_at)
        metrics.PRODUCER_SETTLING.set_function(lambda: len(self._settling))

    async def drain(self, grace: float) -> None:
        """Takes nothing more, and waits until what is on its way has arrived."""
        self._ending.set()
        self._settling.hinted.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=grace)

    async def stop(self) -> None:
        """Ends at once; what was on its way is on a list or is found again. Safe twice."""
        self._ending.set()
        task, self._task = self._task, None
        await ended(task)

    async def run(self) -> None:
        """Scan after scan, with hints between, until the drain."""
        scan_at = self._clock.monotonic()
        while not self._ending.is_set():
            try:
                if self._clock.monotonic() >= scan_at:
                    scan_at = self._clock.monotonic() + await self._scan()
                await self._due()
            except Exception as error:  # noqa: BLE001 - the loop survives everything; each failure is told
                if self._ending.is_set():
                    return
                scan_at = self._clock.monotonic() + self._failed(error)
            await self._sleep(min(scan_at - self._clock.monotonic(), self._settling.next_due()))

    async def _scan(self) -> float:
        """One scan; the seconds until the next one."""
        began = self._clock.monotonic()
        self._settling.overflowed = False
        walk = await asyncio.to_thread(self._directory.walk)
        try:
            enqueued = await self._through(walk)
        finally:
            walk.close()
        took = self._clock.monotonic() - began
        self._reports.scan_ended()
        if self._ending.is_set():
            return self._interval
        outcome = "complete" if walk.complete else "partial"
        metrics.PRODUCER_SCANS.labels(outcome).inc()
        metrics.PRODUCER_SCAN_SECONDS.observe(took)
        _log.info("directory_scanned", outcome=outcome, count=enqueued, duration_ms=round(took * 1000))
        self._failures = 0
        self._watcher.keep(walk.directories)
        if walk.complete:
            self._complete_at = self._clock.monotonic()
            if walk.files:
                # An empty directory may be one whose mount is away.
                metrics.PRODUCER_MARKS_DROPPED.inc(await self._queue.forget(took))
        return max(1.0, self._settling.settle) if self._settling.overflowed else self._interval

    async def _through(self, walk: Walk) -> int:
        enqueued = 0
        while not walk.done and not self._ending.is_set():
            files = await asyncio.to_thread(walk.chunk, LOOK)
            self._watcher.add(walk.directories)
            enqueued += await self._intake.scanned(files, self._due)
            await self._due()
        return enqueued

    async def _due(self) -> None:
        """Takes what has settled, and walks through directories that are new."""
        due = self._settling.due(LOOK)
        if not due:
            return
        looked = await asyncio.to_thread(self._directory.looks, [path for path, _ in due])
        ready: list[Found] = []
        for (path, before), seen in zip(due, looked, strict=True):
            if isinstance(seen, str):
                ready += await self._new_directory(path, seen)
            elif seen is None:
                self._reports.count(ScanOutcome.GONE)
            elif self._settling.settled_again(before, seen):
                ready.append(seen)
        await self._intake.settled(ready)

    async def _new_directory(self, path: str, start: str) -> list[Found]:
        """The settled files of a directory that has come; a large one is left to a scan."""
        try:
            walk = await asyncio.to_thread(self._directory.walk, start)
        except OSError:
            return []  # it is gone again, or a scan will tell of it
        try:
            files = await asyncio.to_thread(walk.chunk, LOOK)
            if self._watcher.add(walk.directories):
                # What comes before the watch has begun is seen by a second walk.
                self._settling.again(path, self._settling.settle + 2 * OVERLAP)
            if not walk.done:
                self._settling.overflowed = True
        finally:
            walk.close()
        return [file for file in files if self._settling.settled(file)]

    def _failed(self, error: Exception) -> float:
        """Tells of a scan that could not be made; the seconds until the next try."""
        metrics.PRODUCER_SCANS.labels("failed").inc()
        if not isinstance(error, OSError):
            metrics.DUTY_FAILURES.labels(self.name).inc()
        pause = min(_LONGEST_RETRY, _FIRST_RETRY * (1 << min(self._failures, 10)), self._interval)
        self._failures += 1
        _log.warn("scan_failed", path=self._directory.root, error=error, failed=self._failures)
        return pause

    async def _sleep(self, seconds: float) -> None:
        """Until so many seconds have gone by, or there is a hint, or the producer ends."""
        if self._ending.is_set() or seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(self._settling.hinted.wait(), seconds)
        except TimeoutError:
            return
        self._settling.hinted.clear()
