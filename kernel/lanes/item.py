"""One outcome on its way into the record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel.lanes.retry import Verdict
from kernel.lanes.types import Claim, Settled


@dataclass(slots=True)
class Item:
    """An outcome, what was decided about it, and who waits for it."""

    claim: Claim
    verdict: Verdict
    code: str = ""
    message: str = ""
    logs: tuple[JobLog, ...] = ()
    future: asyncio.Future[Settled] | None = None

    def done(self, outcome: str, final_due: bool = False) -> None:
        """Tells the worker."""
        if self.future is not None and not self.future.done():
            self.future.set_result(_settled(outcome, final_due))


_settled = lru_cache(32)(Settled)
"""The few there are, made once."""
