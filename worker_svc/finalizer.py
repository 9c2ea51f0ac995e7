"""The end of a job.

When every resource of a job is settled, its finalization is due. One worker takes hold of it under a lease: it writes
the results document, calls the handler's `finalize_job`, and only then ends the job. A worker that dies on the way is
replaced when its hold lapses, and its successor's generation fences it, so that only one can end the job; the hook may
run twice then, as handlers are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.ledger import FinalHold, JobRecord, Ledger
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("worker.finalizer")

POLL_SECONDS = 1.0
AT_ONCE = 16
_LAST_SECONDS = 1.0
"""What is nearly done at the stop is done, so that no other worker must wait for the hold to lapse."""
_OPEN = ("queued", "running")


class FinalSource(Protocol):
    """Where due finalizations are learnt from (`kernel.queue.streams.stream.StreamLane`)."""

    async def finals(self, limit: int) -> list[str]:
        """Jobs whose finalization is due and that nobody seems to be at."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How a finalization went: where the results are, and the code and message of a hook that failed."""

    results_key: str
    error: tuple[str, str] | None = None


class Finalizer:
    """Finalizations of this process, as one duty of its service."""

    name = "finalizer"

    def __init__(
        self,
        source: FinalSource,
        ledger: Ledger,
        conclude: Callable[[JobRecord], Awaitable[Ending]],
        tell: Callable[[JobRecord], Awaitable[None]],
        worker_id: str,
        clock: Clock,
        lease_seconds: float,
        slots_drained: asyncio.Event,
    ) -> None:
        """`conclude` does the work for one job, `tell` publishes how it ended, and may do so again.

        `lease_seconds` is how long a dead worker's hold lasts. A drain goes on until `slots_drained` is set: the last
        task of a job may be the last of this worker.
        """
        self._source = source
        self._ledger = ledger
        self._conclude = conclude
        self._tell = tell
        self._worker_id = worker_id
        self._clock = clock
        self._lease = lease_seconds
        self._slots_drained = slots_drained
        self._due = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None
        self._ending = False

    def kick(self) -> None:
        """Looks for due jobs at once: one was just settled here."""
        self._due.set()

    async def start(self) -> None:
        """Begins to look for due jobs."""
        self._ending = False
        self._loop = asyncio.create_task(self._run(), name="finalizer")

    async def drain(self, grace: float) -> None:
        """Ends the jobs whose last task was done here, and takes no other."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._slots_drained.wait(), grace + _LAST_SECONDS)
        await self._end_loop()
        if self._busy:
            await asyncio.wait(self._busy.values(), timeout=grace)

    async def stop(self) -> None:
        """Lets go of every job; another worker goes on with it when the hold has lapsed. Safe to call twice."""
        await self._end_loop()
        if self._busy:
            await asyncio.wait(self._busy.values(), timeout=_LAST_SECONDS)
        for task in self._busy.values():
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _end_loop(self) -> None:
        """Lets the loop have its last look: what it is told of is put off for all others, so it is never cut short."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._ending = True
        self._due.set()
        done, _ = await asyncio.wait({loop}, timeout=_LAST_SECONDS)
        if not done:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)

    async def _run(self) -> None:
        ending = False
        while not ending:
            ending = self._ending
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - the loop outlives every outage, and says so
                log.warn("finals_failed", error=error)
            if not ending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._due.wait(), POLL_SECONDS)

    async def _look(self) -> None:
        self._due.clear()
        room = AT_ONCE - len(self._busy)
        for job_id in await self._source.finals(room) if room > 0 else ():
            if job_id not in self._busy:
                self._busy[job_id] = asyncio.create_task(self._end(job_id))

    async def _end(self, job_id: str) -> None:
        try:
            await self._finalize(job_id)
        except Exception as error:  # noqa: BLE001 - the job stays due, and is tried again
            metrics.FINALIZERS.labels("broken").inc()
            log.warn("finalize_failed", job_id=job_id, error=error)
        finally:
            del self._busy[job_id]
            self._due.set()

    async def _finalize(self, job_id: str) -> None:
        hold = await self._hold(job_id)
        if hold.state == "mine":
            await self._conclude_held(job_id, hold.generation)
        elif hold.state == "nothing" and hold.status not in _OPEN:
            await self._after_the_end(job_id)

    async def _conclude_held(self, job_id: str, generation: int) -> None:
        record = await self._ledger.get(job_id)
        ending = await self._while_held(record, generation) if record else None
        if ending is None:
            metrics.FINALIZERS.labels("fenced").inc()
            return
        _, status = await self._ledger.end_final(
            job_id, self._worker_id, generation, ending.results_key, ending.error, forget=False
        )
        metrics.FINALIZERS.labels("fenced" if status == "fenced" else "error" if ending.error else "done").inc()
        if status != "fenced":
            await self._told(job_id)

    async def _after_the_end(self, job_id: str) -> None:
        """The job needs no end any more: it was canceled, or its finalizer died between the end and the telling."""
        record = await self._ledger.get(job_id)
        if record is not None and record.status == "canceled":
            ending = await self._conclude(record)
            await self._ledger.end_final(job_id, self._worker_id, 0, ending.results_key, forget=False)
        await self._told(job_id)

    async def _told(self, job_id: str) -> None:
        """The job has ended: publishes that, and only then lets go of it. A death in between repeats this alone."""
        record = await self._ledger.get(job_id)
        if record is not None:
            await self._tell(record)
        await self._ledger.forget_final(job_id)

    async def _hold(self, job_id: str) -> FinalHold:
        return await self._ledger.begin_final(job_id, self._worker_id, int(self._lease * 1000), forget=False)

    async def _while_held(self, record: JobRecord, generation: int) -> Ending | None:
        """The ending, or None where another worker took over in the meantime."""
        work = asyncio.ensure_future(self._conclude(record))
        try:
            while True:
                done, _ = await asyncio.wait({work}, timeout=self._lease / 3)
                if done:
                    return work.result()
                if not await self._renewed(record.job_id, generation):
                    return None
        finally:
            work.cancel()

    async def _renewed(self, job_id: str, generation: int) -> bool:
        try:
            hold = await self._hold(job_id)
        except FetchboxError as error:
            log.warn("hold_not_renewed", job_id=job_id, error=error)
            return True  # whether it lapsed is decided by `end_final`
        return hold.generation == generation
