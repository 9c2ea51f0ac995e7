"""One outcome on its way into the record, and one report of events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel.queue.work.retry import Verdict
from kernel.queue.work.types import Claim, Settled


@dataclass(slots=True)
class Item:
    """An outcome, what was decided about it, and who waits for it."""

    claim: Claim
    verdict: Verdict
    code: str = ""
    message: str = ""
    logs: tuple[JobLog, ...] = ()
    result: bytes = b""
    future: asyncio.Future[Settled] | None = None

    def done(self, outcome: str, final_due: bool = False) -> None:
        """Tells the worker."""
        if self.future is not None and not self.future.done():
            self.future.set_result(_settled(outcome, final_due))


@dataclass(slots=True)
class EventReport:
    """Events of a running task job, and who waits for them to be written."""

    claim: Claim
    first: int
    """The number of the first event within its attempt, from 1."""
    events: Sequence[tuple[str, bytes]]
    """Type and data of each."""
    future: asyncio.Future[bool]

    def args(self) -> list[str | int | bytes]:
        """The arguments of `task_events`."""
        told = (part for event in self.events for part in event)
        return [self.claim.token, "worker.handler", self.first, *told]

    def done(self, written: bool) -> None:
        """Tells the worker: False where the attempt is over."""
        if not self.future.done():
            self.future.set_result(written)


_settled = lru_cache(32)(Settled)
"""The few there are, made once."""
