"""Starts attempts at task jobs, one script a task: state and event are there before any work."""

from __future__ import annotations

from typing import Any

from fetchbox.config.v1 import config_pb2
from kernel.ledger.base import begin_keys
from kernel.queue.streams.calls import JobCall
from kernel.queue.streams.entry import QueueEntry, claimed, queued_task, token
from kernel.queue.streams.publications import Flush
from kernel.queue.streams.task_outcomes import TaskOutcomes
from kernel.queue.work.types import Claim
from kernel.redis import scripts
from kernel.redis.pipe import Command


class TaskStarter:
    """The start of one task, as commands and replies of a batch."""

    def __init__(self, config: config_pb2.Config, worker: str, outcomes: TaskOutcomes) -> None:
        self._outcomes = outcomes
        self._crash_limit = config.worker.crash_limit
        self._default_ttl = config.tasks.job_ttl_s
        self._call = JobCall(scripts.TASK_START, begin_keys, (worker, "worker.claim"))

    def command(self, entry: QueueEntry) -> Command:
        """The call of `task_start`."""
        task = queued_task(entry)
        again, entry.tried = entry.tried, True
        attempt = 0 if entry.crashes >= self._crash_limit else entry.attempts + 1
        args = (entry.deliveries, token(entry), attempt, int(again), entry.id)
        return self._call.pack(task.job_id, args)

    def started(self, flush: Flush, made: Flush, entry: QueueEntry, reply: Any, epoch: int) -> Claim | None:
        """The claim; None where the job has ended. What another's gateway made is entered in the indexes by `made`."""
        task = queued_task(entry)
        granted, now, created, ttl, tenant, trace_id, revision, *rest = reply
        task.tenant, task.trace_id = tenant.decode(errors="replace"), trace_id.decode(errors="replace")
        task.ttl_s = ttl if ttl > 0 else self._default_ttl
        if granted == 0:
            status, error = rest
            self._outcomes.again(flush, task, status.decode(), now, created, revision, error)
            self._outcomes.forget(flush, entry)
            return None
        if not entry.ledgered:
            made.indexed += (created or now, task.job_id)
            made.expiring += (now + task.ttl_s * 1000, task.job_id)
        return claimed(entry, granted, epoch, now)
