"""What the replies of `task_start` and `task_settle` mean: messages, acknowledgement, and what the worker is told.

A task job is a job of its own: each attempt that ends it makes one status, one log line and, where it failed,
one dead letter, unless it is an attempt at a step of a flow; then its entry leaves the queue.
"""

from __future__ import annotations

from typing import Any

from fetchbox.jobs.jobs_pb2 import JobStatus, QueuedTask
from kernel.ledger.record import error_json, error_of, log_offset
from kernel.queue.streams.entry import QueueEntry
from kernel.queue.streams.item import Item
from kernel.queue.streams.publications import (
    Flush,
    Publisher,
    common_status,
    completed_line,
    dead_letter,
    failed_line,
    is_dead,
    park,
    put_off_line,
)
from kernel.redis import keys
from kernel.redis.link import is_error
from kernel.telemetry import metrics


class TaskOutcomes:
    """Turns recorded outcomes of tasks into publications."""

    def __init__(self, publisher: Publisher, consumer: str) -> None:
        self._publisher = publisher
        self._consumer = consumer

    def settled(self, flush: Flush, item: Item, reply: Any) -> None:
        """One settlement."""
        if is_error(reply):
            self._refused(flush, item, str(reply))
            return
        if reply[0] == b"gone":
            self._end(flush, item, "absorbed")
            return
        verdict, status, updated, created, revision, error = reply
        if verdict == b"n":
            self._recorded(flush, item, status.decode(), updated, created, revision)
        elif verdict in {b"r", b"d"}:
            self._parked(flush, item, updated, "retrying" if verdict == b"r" else "deferred")
        elif verdict == b"x":
            metrics.FENCED.inc()
            flush.told.append((item, "fenced", False))
        elif verdict == b"s":
            self.again(flush, _task(item), status.decode(), updated, created, revision, error)
            self._end(flush, item, "settled")
        else:
            self._end(flush, item, "absorbed")

    def again(
        self, flush: Flush, task: QueuedTask, status: str, updated: int, created: int, revision: int, error: bytes
    ) -> None:
        """The publications of a job that has ended: a crash may have lost them.

        How a job that is done came to its result is not known here: a note that stands is left to the `Announcer`.
        """
        self._status(flush, task, status, updated, created, revision, error)
        if status == "error":
            self._failed(flush, task, error, updated)
            flush.published.append(task.job_id)

    def forget(self, flush: Flush, entry: QueueEntry) -> None:
        """Takes an entry off the queue that is not to run."""
        counted = entry.work.task if entry.ledgered and isinstance(entry.work, QueuedTask) else ""
        flush.acknowledge(entry.lane, entry.id, counted)

    def _recorded(self, flush: Flush, item: Item, status: str, updated: int, created: int, revision: int) -> None:
        task, verdict = _task(item), item.verdict
        failed = status == "error"
        self._status(flush, task, status, updated, created, revision, verdict.error)
        self._own_logs(flush, item, updated)
        if failed:
            self._failed(flush, task, verdict.error, updated, item.claim.began_ms)
            label = metrics.code(item.code)
            metrics.TASK_FAILURES.labels(code=label).inc()
            if is_dead(task, item.code):
                metrics.DEAD_LETTERS.labels(code=label).inc()
        else:
            self._publisher.log(
                flush, task.job_id, completed_line(task, updated, verdict.attempts, item.claim.began_ms)
            )
        flush.jobs_ended.append((task.task, status))
        flush.published.append(task.job_id)
        self._end(flush, item, "failed" if failed else "completed")

    def _parked(self, flush: Flush, item: Item, updated: int, outcome: str) -> None:
        self._own_logs(flush, item, updated)
        self._publisher.log(flush, item.claim.job_id, put_off_line(item, updated))
        park(flush, item, keys.QUEUE, self._consumer)
        flush.told.append((item, outcome, False))

    def _failed(self, flush: Flush, task: QueuedTask, error: bytes, updated: int, began: int = 0) -> None:
        self._publisher.log(flush, task.job_id, failed_line(task, updated, error, began))
        if is_dead(task, error_of(error)[0]):
            self._publisher.letter(flush, task.job_id, dead_letter(task, error, updated))

    def _status(
        self, flush: Flush, task: QueuedTask, status: str, updated: int, created: int, revision: int, error: bytes
    ) -> None:
        own = JobStatus(job_id=task.job_id, log_offset=log_offset(created), timestamp_ms=updated, revision=revision)
        if error:
            own.last_error_code, own.last_error_message = error_of(error)
        message = common_status(task.task, task.tenant, status) + own.SerializeToString()
        self._publisher.task_status(flush, task.job_id, message)

    def _own_logs(self, flush: Flush, item: Item, updated: int) -> None:
        for line in item.logs:
            line.job_id = item.claim.job_id
            line.timestamp_ms = line.timestamp_ms or updated
            self._publisher.log(flush, line.job_id, line.SerializeToString())

    def _refused(self, flush: Flush, item: Item, reason: str) -> None:
        """The record cannot be moved at all (a foreign key of its name): the task waits in the dead letters."""
        task = _task(item)
        error = error_json("SYSTEM_INTERNAL", f"the job's record cannot be written: {reason}")
        self._publisher.letter(flush, task.job_id, dead_letter(task, error, 0))
        self._end(flush, item, "failed")

    def _end(self, flush: Flush, item: Item, outcome: str) -> None:
        flush.acknowledge(keys.QUEUE, item.claim.entry, item.claim.job_type if item.claim.counted else "")
        flush.told.append((item, outcome, False))


def _task(item: Item) -> QueuedTask:
    task = item.claim.queued
    assert task is not None  # noqa: S101 - the groups of the settler are of one kind
    return task
