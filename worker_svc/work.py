"""What runs in a slot, by kind: a resource is fetched, a task job goes to its handler, a file is stored."""

from __future__ import annotations

from collections.abc import Awaitable

from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from kernel.queue.work.types import Claim, Failure, Outcome
from worker_svc.fetching import TaskRunner
from worker_svc.files import FileRunner
from worker_svc.slot import Slot
from worker_svc.task_runner import QueuedRunner


class Work:
    """Does claims of all kinds, and words how they end when they are stopped."""

    def __init__(self, fetches: TaskRunner, tasks: QueuedRunner, files: FileRunner) -> None:
        self._fetches = fetches
        self._tasks = tasks
        self._files = files

    def __call__(self, slot: Slot) -> Awaitable[Outcome]:
        """One attempt at the claim of a slot."""
        work = slot.claim.work
        if isinstance(work, DownloadTask):
            return self._fetches(slot.claim)
        return self._tasks(slot) if isinstance(work, QueuedTask) else self._files(slot.claim)

    def late(self, claim: Claim, deadline: float) -> Failure:
        """The outcome of an attempt that was stopped after `deadline` seconds."""
        return self._kind(claim).late(claim, deadline)

    def canceled(self, claim: Claim) -> Failure:
        """The outcome of an attempt whose job was canceled."""
        return self._kind(claim).canceled(claim)

    def _kind(self, claim: Claim) -> TaskRunner | QueuedRunner | FileRunner:
        if isinstance(claim.work, DownloadTask):
            return self._fetches
        return self._tasks if isinstance(claim.work, QueuedTask) else self._files
