"""One place in a worker where one task runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel.lanes.types import Claim, Outcome

INSIST_SECONDS = 5.0
"""How long interrupted work may take to end before it is interrupted again."""
_INSISTENCE = 2
"""How often it is interrupted again before its slot is taken from it."""


class Slot:
    """A running claim. `verdict` is the outcome that an interruption imposes; None settles nothing."""

    __slots__ = (
        "_abandon",
        "_insisted",
        "abandoned",
        "claim",
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

    def __init__(self, claim: Claim, since: float, abandon: Callable[[Slot], None]) -> None:
        """`since` is the clock's monotonic time of the claim; `abandon` is called where the work does not end."""
        self.claim = claim
        self.since = since
        self.started = False
        self.settling = False
        self.interrupted = False
        self.abandoned = False
        self.verdict: Outcome | None = None
        self.lines: tuple[JobLog, ...] = ()
        """What the work has put into the job's log, however it ends."""
        self._abandon = abandon
        self._insisted = 0

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
            self._insist_later()
        if self.started:
            self.task.cancel()

    def _insist_later(self) -> None:
        self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(INSIST_SECONDS, self._insist)

    def _insist(self) -> None:
        """Interrupts work that has swallowed its cancellation; work that ends all the same was only slow to tidy up."""
        self._insisted += 1
        if self._insisted > _INSISTENCE:
            self._abandon(self)
            return
        self.task.cancel()
        self._insist_later()
