"""One place in a worker where one task runs."""

from __future__ import annotations

import asyncio

from kernel.lanes.types import Claim, Outcome


class Slot:
    """A running claim. `verdict` is the outcome that an interruption imposes; None settles nothing."""

    __slots__ = ("claim", "interrupted", "settling", "since", "started", "task", "timer", "verdict")

    task: asyncio.Task[None]
    timer: asyncio.TimerHandle

    def __init__(self, claim: Claim, since: float) -> None:
        """`since` is the clock's monotonic time of the claim."""
        self.claim = claim
        self.since = since
        self.started = False
        self.settling = False
        self.interrupted = False
        self.verdict: Outcome | None = None

    def interrupt(self, verdict: Outcome | None) -> None:
        """Ends the work. Once its outcome is on the way into the ledger, that stands.

        The first verdict holds, unless the claim is to be given up altogether. A task that has not begun is not
        canceled, since it could not even free its slot: it looks at `interrupted` first.
        """
        if self.settling or (self.interrupted and verdict is not None):
            return
        self.interrupted = True
        self.verdict = verdict
        if self.started:
            self.task.cancel()
