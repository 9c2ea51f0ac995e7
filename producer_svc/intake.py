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
from typing import Final, TypeVar

from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.ids import uuid7
from kernel.lists.enqueue import BATCH, LOOK, FileQueue, Offer, Put
from kernel.lists.job import FileJob, time_text
from kernel.telemetry import metrics, tracing
from kernel.telemetry.logs import get_logger
from producer_svc.found import Found, look
from producer_svc.reports import Outcome, Reports
from producer_svc.rules import Rules
from producer_svc.settling import Settling

_log = get_logger("producer")
_Answer = TypeVar("_Answer")
_FULL_PAUSE: Final = 0.2
"""Seconds between looks at a queue that is as long as may be."""
_LONGEST_PAUSE: Final = 10.0
_RETRY_PAUSE: Final = 0.5

Between = Callable[[], Awaitable[None]]
"""What is done while a scan waits for room."""


class Intake:
    """Takes files in, each once."""

    def __init__(
        self, queue: FileQueue, rules: Rules, settling: Settling, reports: Reports, clock: Clock, ending: asyncio.Event
    ) -> None:
        self._queue = queue
        self._rules = rules
        self._settling = settling
        self._reports = reports
        self._clock = clock
        self._ending = ending

    async def scanned(self, files: Sequence[Found], between: Between) -> int:
        """Takes files of a scan, and waits for room; how many were put onto a queue."""
        fresh = [file for file in await self.unknown(files) if self._settles(file)]
        enqueued = 0
        for group in self._grouped(await self._readable(fresh)):
            enqueued += await self._put_all(group, between)
        return enqueued

    async def settled(self, files: Sequence[Found]) -> int:
        """Takes files that have settled; those for which there is no room now wait on."""
        enqueued = 0
        for group in self._grouped(await self._readable(await self.unknown(files))):
            for start in range(0, len(group), BATCH):
                batch = group[start : start + BATCH]
                put = await self._put(batch)
                enqueued += sum(put.done)
                for file in batch[len(put.done) :]:
                    self._settling.again(file, put.wait or _FULL_PAUSE)
        return enqueued

    async def unknown(self, files: Sequence[Found]) -> list[Found]:
        """Those without a mark as they are now."""
        fresh: list[Found] = []
        for start in range(0, len(files), LOOK):
            page = files[start : start + LOOK]
            marks = [file.mark() for file in page]
            known = await self._patiently(partial(self._queue.known, marks))
            fresh += [file for file, is_known in zip(page, known, strict=True) if not is_known]
        self._reports.count(Outcome.KNOWN, len(files) - len(fresh))
        return fresh

    def _settles(self, file: Found) -> bool:
        settled = self._settling.settled(file)
        if not settled:
            self._reports.count(Outcome.SETTLING)
        return settled

    async def _readable(self, files: Sequence[Found]) -> list[Found]:
        if not files:
            return []
        answers = await asyncio.to_thread(_access, files)
        for file, answer in zip(files, answers, strict=True):
            if not answer:
                self._reports.problem(Outcome.UNREADABLE, file.path, file.mark().state)
        return [file for file, answer in zip(files, answers, strict=True) if answer]

    def _grouped(self, files: Sequence[Found]) -> list[list[Found]]:
        """By queue, the highest priority first, so that a full queue holds up no higher one."""
        groups: dict[str, list[Found]] = {}
        for file in files:
            groups.setdefault(self._rules.priority(file.name), []).append(file)
        return [groups[priority] for priority in self._rules.priorities if priority in groups]

    async def _put_all(self, files: list[Found], between: Between) -> int:
        enqueued, pause = 0, _FULL_PAUSE
        while files and not self._ending.is_set():
            batch = files[:BATCH]
            put = await self._put(batch)
            enqueued += sum(put.done)
            files = files[len(put.done) :]
            if len(put.done) == len(batch):
                continue
            await between()
            pause = min(2 * pause, _LONGEST_PAUSE) if put.full and not put.done else _FULL_PAUSE
            await self._wait(pause if put.full else put.wait, "backlog" if put.full else "rate")
            files = await self._looked_again(files)
        return enqueued

    async def _looked_again(self, files: Sequence[Found]) -> list[Found]:
        """Those that are still what they were; what has changed meanwhile settles anew."""
        now = await asyncio.to_thread(_looks, files)
        self._reports.count(Outcome.GONE, now.count(None))
        return [
            file
            for before, file in zip(files, now, strict=True)
            if file is not None and (file == before or self._settles(file))
        ]

    async def _put(self, files: Sequence[Found]) -> Put:
        created = time_text(self._clock.now_ms() * 1_000_000)
        offers, spans = [], []
        for file in files:
            priority = self._rules.priority(file.name)
            job_id, queue = uuid7(), self._rules.queue(priority)
            span = tracing.begun("enqueue", queue=queue, job_id=job_id, outcome=str(Outcome.ENQUEUED))
            context = span.get_span_context() if span is not None else None
            job = FileJob(
                job_id,
                file.path,
                file.size,
                priority,
                creation_time=created,
                trace_id=f"{context.trace_id:032x}" if context is not None else "",
                span_id=f"{context.span_id:016x}" if context is not None else "",
                origin_queue=queue,
            )
            offers.append(Offer(file.mark(), queue, job.encode()))
            spans.append(span)
        put = await self._patiently(partial(self._queue.put, offers))
        for done, span in zip(put.done, spans, strict=False):
            if done and span is not None:
                span.end()
        self._told(offers, put)
        return put

    def _told(self, offers: Sequence[Offer], put: Put) -> None:
        for offer, done in zip(offers, put.done, strict=False):
            if done:
                metrics.JOBS_PRODUCED.labels(metrics.queue(offer.queue)).inc()
        self._reports.count(Outcome.ENQUEUED, sum(put.done))
        self._reports.count(Outcome.KNOWN, len(put.done) - sum(put.done))

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


def _access(files: Sequence[Found]) -> list[bool]:
    return [os.access(file.path, os.R_OK) for file in files]


def _looks(files: Sequence[Found]) -> list[Found | None]:
    return [look(file.path) for file in files]
