"""Canceled jobs reach their running tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kernel.queue.work.types import Claim, Failure
from worker_svc.runner import Runner
from worker_svc.slot import Slot

POLL_SECONDS = 1.0
"""How often canceled jobs are looked for: a running task notices within two of these."""


class CancelSource(Protocol):
    """Where cancellations are learnt from (`kernel.queue.streams.stream.StreamLane`)."""

    async def canceled(self, job_ids: Iterable[str]) -> set[str]:
        """Those of the jobs that have ended."""
        ...


class CancelWatch:
    """Asks after the jobs that run here, and interrupts the tasks of those that were canceled."""

    def __init__(self, source: CancelSource, runner: Runner, verdict: Callable[[Claim], Failure]) -> None:
        self._source = source
        self._runner = runner
        self._verdict = verdict

    async def __call__(self) -> None:
        """One look."""
        jobs = {slot.claim.job_id for slot in self._runner.running if _can_be_canceled(slot)}
        if not jobs:
            return
        canceled = await self._source.canceled(jobs)
        for slot in tuple(self._runner.running):
            if slot.claim.job_id in canceled and _can_be_canceled(slot):
                slot.interrupt(self._verdict(slot.claim))


def _can_be_canceled(slot: Slot) -> bool:
    """A file job has no record that says so."""
    return not slot.claim.queue
