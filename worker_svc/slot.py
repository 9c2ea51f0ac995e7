"""One place in a worker where one task runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel.queue.work.types import Claim, Outcome


class Slot:
    """A running claim. `verdict` is the outcome that an interruption imposes; None settles nothing."""

    __slots__ = (
        "_told",
        "abandoned",
        "claim",
        "insisted",
        "interrupted",
        "lines",
        "settling",
        "since",
        "started",
        "task",
        "timer",
        "verdict",
    )

    task: asyncio.Task[None]
    timer: asyncio.TimerHandle

    def __init__(self, claim: Claim, since: float, told: Callable[[Slot], None]) -> None:
        """`since` is the clock's monotonic time of the claim; `told` is called when the slot is interrupted."""
        self.claim = claim
        self.since = since
        self.started = False
        self.settling = False
        self.interrupted = False
        self.insisted = 0
        self.abandoned = False
        self.verdict: Outcome | None = None
        self.lines: tuple[JobLog, ...] = ()
        """What the work has put into the job's log, however it ends."""
        self._told = told

    @property
    def over(self) -> bool:
        """Whether the work has ended, or is void."""
        return self.interrupted or self.settling

    def interrupt(self, verdict: Outcome | None) -> None:
        """Ends the work. Once its outcome is on the way into the ledger, that stands.

        The first verdict holds, unless the claim is to be given up altogether. A task that has not begun is not
        canceled, since it could not even free its slot: it looks at `interrupted` first.
        """
        if self.settling or (self.interrupted and verdict is not None):
            return
        self.verdict = verdict
        if not self.interrupted:
            self.interrupted = True
            self._told(self)
        if self.started:
            self.task.cancel()
