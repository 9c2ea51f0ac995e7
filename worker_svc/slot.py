"""One place in a worker where one task runs."""

from __future__ import annotations

import asyncio

from kernel.lanes.types import Claim, Outcome


class Slot:
    """A running claim. `verdict` is the outcome that an interruption imposes; None settles nothing."""

    __slots__ = ("claim", "settling", "since", "task", "timer", "verdict")

    task: asyncio.Task[None]
    timer: asyncio.TimerHandle

    def __init__(self, claim: Claim, since: float) -> None:
        """`since` is the clock's monotonic time of the claim."""
        self.claim = claim
        self.since = since
        self.verdict: Outcome | None = None
        self.settling = False

    def interrupt(self, verdict: Outcome | None) -> None:
        """Ends the work. Once its outcome is on the way into the ledger, that stands."""
        if not self.settling:
            self.verdict = verdict
            self.task.cancel()
