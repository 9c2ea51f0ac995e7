"""From files that were found to jobs on the lists.

Of what is found, those go on that have no mark as they are now, then those that are settled and can be read, then those
that rate and backlog let through: the highest priority first. A scan waits for room, since the directory is its memory;
files that come from the watcher meanwhile are tried between, and put aside again where there is none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.ids import uuid7
from kernel.queue.work.file_job import FileJob, time_text
from kernel.telemetry import metrics, tracing
from kernel.telemetry.logs import get_logger
from producer_svc.enqueue import BATCH, LOOK, FileQueue, Offer, Put, Reached
from producer_svc.found import Found, look
from producer_svc.reports import Reports, ScanOutcome
from producer_svc.rules import Rules
from producer_svc.settling import FileSettling

_log = get_logger("producer")
_Answer = TypeVar("_Answer")
_FULL_PAUSE: Final = 0.2
"""Seconds between looks at a queue that is as long as may be."""
_LONGEST_PAUSE: Final = 10.0
_RETRY_PAUSE: Final = 0.5

Between = Callable[[], Awaitable[None]]
"""What is done while a scan waits for room."""


class _Fresh(NamedTuple):
    """A file that has no mark as it is, and what its mark says instead."""

    file: Found
    before: bytes


class Intake:
    """Takes files in, each once."""

    def __init__(
        self,
        queue: FileQueue,
        rules: Rules,
        settling: FileSettling,
        reports: Reports,
        clock: Clock,
        ending: asyncio.Event,
    ) -> None:
        self._queue = queue
        self._rules = rules
        self._settling = settling
        self._reports = reports
        self._clock = clock
        self._ending = ending

    async def scanned(self, files: Sequence[Found], between: Between) -> int:
        """Takes files of a scan, and waits for room; how many were put onto a queue."""
        fresh = [one for one in await self._unmarked(files) if self._settles(one.file)]
        enqueued = 0
        for group in self._grouped(await self._readable(fresh)):
            enqueued += await self._put_all(group, between)
        return enqueued

    async def settled(self, files: Sequence[Found]) -> int:
        """Takes files that have settled; those for which there is no room now wait on."""
        enqueued = 0
        for group in self._grouped(await self._readable(await self._unmarked(files))):
            for start in range(0, len(group), BATCH):
                batch = group[start : start + BATCH]
                put = await self._put(batch)
                enqueued += put.done.count(Reached.PUT)
                for one in batch[len(put.done) :]:
                    self._settling.again(one.file.path, put.wait or _FULL_PAUSE)
        return enqueued

    async def _unmarked(self, files: Sequence[Found]) -> list[_Fresh]:
        """Those without a mark as they are now."""
        fresh: list[_Fresh] = []
        for start in range(0, len(files), LOOK):
            page = files[start : start + LOOK]
            states = await self._patiently(partial(self._queue.marked, [file.mark() for file in page]))
            fresh += [_Fresh(file, state) for file, state in zip(page, states, strict=True) if state is not None]
        self._reports.count(ScanOutcome.KNOWN, len(files) - len(fresh))
        return fresh

    def _settles(self, file: Found) -> bool:
        settled = self._settling.settled(file)
        if not settled:
            self._reports.count(ScanOutcome.SETTLING)
        return settled

    async def _readable(self, files: Sequence[_Fresh]) -> list[_Fresh]:
        """Those that can be read, and are what they were before their marks were read."""
        same = await self._same(files)
        answers = await asyncio.to_thread(_access, same) if same else []
        for one, answer in zip(same, answers, strict=True):
            if not answer:
                self._reports.problem(ScanOutcome.UNREADABLE, one.file.path, one.file.mark().state)
        return [one for one, answer in zip(same, answers, strict=True) if answer]

    def _grouped(self, files: Sequence[_Fresh]) -> list[list[_Fresh]]:
        """By queue, the highest priority first, so that a full queue holds up no higher one."""
        groups: dict[str, list[_Fresh]] = {}
        for one in files:
            groups.setdefault(self._rules.priority(one.file.name), []).append(one)
        return [groups[priority] for priority in self._rules.priorities if priority in groups]

    async def _put_all(self, files: list[_Fresh], between: Between) -> int:
        enqueued, pause = 0, _FULL_PAUSE
        while files and not self._ending.is_set():
            batch = files[:BATCH]
            put = await self._put(batch)
            enqueued += put.done.count(Reached.PUT)
            files = files[len(put.done) :]
            if len(put.done) == len(batch):
                continue
            await between()
            pause = min(2 * pause, _LONGEST_PAUSE) if put.full and not put.done else _FULL_PAUSE
            await self._wait(pause if put.full else put.wait, "backlog" if put.full else "rate")
            files = await self._same(files)
        return enqueued

    async def _same(self, files: Sequence[_Fresh]) -> list[_Fresh]:
        """Those that still are what they were; what has changed meanwhile is looked at once more later."""
        now = await asyncio.to_thread(_looks, files) if files else []
        self._reports.count(ScanOutcome.GONE, now.count(None))
        for one, file in zip(files, now, strict=True):
            if file is not None and file != one.file:
                self._settling.changed(file.path)
        return [one for one, file in zip(files, now, strict=True) if file == one.file]

    async def _put(self, files: Sequence[_Fresh]) -> Put:
        created = time_text(self._clock.now_ms() * 1_000_000)
        jobs = [self._job(one.file, created) for one in files]
        offers = [
            Offer(one.file.mark(), one.before, job.origin_queue, job.encode())
            for one, (job, _) in zip(files, jobs, strict=True)
        ]
        put = await self._patiently(partial(self._queue.put, offers))
        for one, (job, span), reached in zip(files, jobs, put.done, strict=False):
            if reached is Reached.OVERTAKEN:
                self._settling.changed(one.file.path)
            elif reached is Reached.PUT:
                metrics.JOBS_PRODUCED.labels(metrics.queue(job.origin_queue)).inc()
                _log.debug("file_enqueued", job_id=job.id, queue=job.origin_queue)
                span.end()
        self._reports.count(ScanOutcome.ENQUEUED, put.done.count(Reached.PUT))
        self._reports.count(ScanOutcome.KNOWN, put.done.count(Reached.MARKED))
        return put

    def _job(self, file: Found, created: str) -> tuple[FileJob, tracing.Begun]:
        """The job of a file, and the span that tells of it."""
        priority = self._rules.priority(file.name)
        job_id, queue = uuid7(), self._rules.queue(priority)
        span = tracing.begun("enqueue", queue=queue, job_id=job_id, outcome=str(ScanOutcome.ENQUEUED))
        trace_id, span_id = span.ids()
        job = FileJob(
            job_id,
            file.path,
            file.size,
            priority,
            creation_time=created,
            trace_id=trace_id,
            span_id=span_id,
            origin_queue=queue,
        )
        return job, span

    async def _patiently(self, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Asks Redis for as long as it is away; raises `UNAVAILABLE` only where the producer ends meanwhile."""
        pause = _RETRY_PAUSE
        while True:
            try:
                return await call()
            except FetchboxError as error:
                if self._ending.is_set():
                    raise
                _log.warn("waiting_for_redis", error=str(error))
            await self._wait(pause, "redis")
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _wait(self, seconds: float, cause: str) -> None:
        """Waits, or until the producer ends."""
        began = self._clock.monotonic()
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            metrics.PRODUCER_WAIT_SECONDS.labels(cause).inc(max(0.0, self._clock.monotonic() - began))


def _access(files: Sequence[_Fresh]) -> list[bool]:
    return [os.access(one.file.path, os.R_OK) for one in files]


def _looks(files: Sequence[_Fresh]) -> list[Found | None]:
    return [look(one.file.path) for one in files]
