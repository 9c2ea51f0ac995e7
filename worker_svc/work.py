"""What runs in a slot, by kind: a resource is fetched, a task of seed 004 goes to its handler."""

from __future__ import annotations

from collections.abc import Awaitable

from kernel.lanes.types import Claim, Failure, Outcome
from worker_svc.fetching import TaskRunner
from worker_svc.slot import Slot
from worker_svc.task_runner import QueuedRunner


class Work:
    """Does claims of both kinds, and words how they end when they are stopped."""

    def __init__(self, fetches: TaskRunner, tasks: QueuedRunner) -> None:
        self._fetches = fetches
        self._tasks = tasks

    def __call__(self, slot: Slot) -> Awaitable[Outcome]:
        """One attempt at the claim of a slot."""
        return self._fetches(slot.claim) if slot.claim.queued is None else self._tasks(slot)

    def late(self, claim: Claim, deadline: float) -> Failure:
        """The outcome of an attempt that was stopped after `deadline` seconds."""
        return self._kind(claim).late(claim, deadline)

    def canceled(self, claim: Claim) -> Failure:
        """The outcome of an attempt whose job was canceled."""
        return self._kind(claim).canceled(claim)

    def _kind(self, claim: Claim) -> TaskRunner | QueuedRunner:
        return self._fetches if claim.queued is None else self._tasks
