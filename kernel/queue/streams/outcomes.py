"""What the replies of `settle` mean: which messages each recorded outcome makes, and what its worker is told.

Here for the resources of fetch jobs, whose tasks settle many at a time; `task_outcomes` does it for task jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from kernel.ledger.record import error_json
from kernel.queue.streams.entry import QueueEntry
from kernel.queue.streams.item import Item
from kernel.queue.streams.publications import (
    Flush,
    JobSnapshot,
    Publisher,
    completed_line,
    dead_letter,
    failed_line,
    is_dead,
    park,
    put_off_line,
)
from kernel.queue.streams.task_outcomes import TaskOutcomes
from kernel.queue.work.tally import Tally
from kernel.queue.work.types import Claim
from kernel.redis import keys
from kernel.redis.link import is_error
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger(__name__)

_FAILED = frozenset({"failed", "retrying"})
_LATER = {b"r": "retrying", b"d": "deferred"}
"""Verdicts after which the work is done again, and what the worker is told."""
_PRIVATE = frozenset({b"x", *_LATER})
"""Verdicts that change nothing about a job that has a total."""


class Outcomes:
    """Turns recorded outcomes into publications."""

    def __init__(self, publisher: Publisher, tasks: TaskOutcomes, consumer: str) -> None:
        self._publisher = publisher
        self._tasks = tasks
        self._consumer = consumer
        self._tallies: dict[type, Tally] = {DownloadTask: Tally(keys.TASKS), QueuedTask: Tally(keys.QUEUE)}

    def recorded(self, groups: Sequence[Sequence[Item]], replies: Sequence[Any]) -> Flush:
        """What the settlements of some jobs make known, of each job by the reply to its items."""
        flush = Flush()
        for items, reply in zip(groups, replies, strict=True):
            try:
                self._tell_all(flush, items, reply)
            except Exception as error:  # noqa: BLE001 - what one job's record holds must not cost the others their end
                _log.exception("outcome_broken", error)
                flush.told += [(item, "settled", False) for item in items]
        self._count(flush)
        for (kind, status), count in Counter(flush.jobs_ended).items():
            metrics.JOBS_ENDED.labels(job_type=metrics.job_type(kind), status=status).inc(count)
        return flush

    def _count(self, flush: Flush) -> None:
        found = Counter([(type(item.claim.work), outcome) for item, outcome, _ in flush.told])
        for (kind, outcome), count in found.items():
            metrics.TASKS.labels(outcome=outcome).inc(count)
            if outcome != "deferred":  # what is put off was not taken
                self._tallies[kind].consumed.inc(count)
            if outcome != "failed":
                self._tallies[kind].ended(outcome, count)
        if any(outcome in _FAILED for _, outcome in found):
            for item, outcome, _ in flush.told:
                if outcome in _FAILED:
                    self._count_failure(item, outcome)

    def _count_failure(self, item: Item, outcome: str) -> None:
        tally = self._tallies[type(item.claim.work)]
        tally.failed(item.code)
        if outcome == "failed" and is_dead(item.claim.work, item.code):
            tally.ended(outcome)

    def _tell_all(self, flush: Flush, items: Sequence[Item], reply: Any) -> None:
        if items[0].claim.queued is None:
            self._settled(flush, items, reply)
            return
        for item in items:
            self._tasks.settled(flush, item, reply)

    def _settled(self, flush: Flush, items: Sequence[Item], reply: Any) -> None:
        """The outcomes of one job's items."""
        if is_error(reply):
            self._refused(flush, items, str(reply))
            return
        if reply[0] == b"gone":
            for item in items:
                self._acknowledge(flush, item.claim)
                self._tell(flush, item, "absorbed")
            return
        job = JobSnapshot.of(items[0].claim.task, reply, self._publisher.bucket)
        verdicts = reply[11:]
        for item, verdict in zip(items, verdicts, strict=True):
            self._one(flush, job, item, verdict)
        if not _PRIVATE.issuperset(verdicts) or (job.total == 0 and not _LATER.keys().isdisjoint(verdicts)):
            self._publisher.status(flush, job)
        if job.ended and b"n" in verdicts:
            flush.jobs_ended.append((job.job_type, job.status))
            flush.published.append(job.job_id)

    def repeated(self, flush: Flush, job: JobSnapshot, entries: Sequence[tuple[QueueEntry, Any]]) -> None:
        """Entries that were delivered although they are settled: what was published may be lost, so again."""
        for entry, verdict in entries:
            task = entry.work
            assert isinstance(task, DownloadTask)  # noqa: S101 - only decoded entries are started
            if verdict == 0:
                self._publisher.log(flush, task.job_id, completed_line(task, job.updated_ms, entry.attempts + 1))
            elif isinstance(verdict, bytes):
                self._failed_before(flush, job, task, verdict)
            elif verdict == -2 and job.status != "canceled":
                late = error_json("SYSTEM_EXPIRED", "its job had ended when the task came", attempts=entry.attempts)
                self._failed_before(flush, job, task, late)
            self._forget(flush, entry)
        self._publisher.status(flush, job)

    def absorbed(self, flush: Flush, entries: Sequence[QueueEntry]) -> None:
        """Entries of jobs whose record is gone."""
        for entry in entries:
            self._forget(flush, entry)
        metrics.TASKS.labels(outcome="absorbed").inc(len(entries))

    def _one(self, flush: Flush, job: JobSnapshot, item: Item, verdict: bytes) -> None:
        if verdict == b"n":
            self._recorded(flush, job, item)
            return
        if verdict in _LATER:
            self._parked(flush, job, item, _LATER[verdict])
            return
        if verdict == b"x":
            metrics.FENCED.inc()
            self._tell(flush, item, "fenced")
            return
        task = item.claim.task
        if verdict == b"s":
            self._publisher.log(flush, task.job_id, completed_line(task, job.updated_ms, item.verdict.attempts))
        elif verdict != b"c":
            self._failed_before(flush, job, task, verdict)
        self._acknowledge(flush, item.claim)
        self._tell(flush, item, "absorbed" if verdict == b"c" else "settled", final_due=job.fin == "due")

    def _recorded(self, flush: Flush, job: JobSnapshot, item: Item) -> None:
        task = item.claim.task
        completed = item.verdict.kind == "o"
        if item.logs:
            self._own_logs(flush, job, item)
        else:
            if completed:
                line = completed_line(task, job.updated_ms, item.verdict.attempts)
            else:
                line = failed_line(task, job.updated_ms, item.verdict.error)
            self._publisher.log(flush, task.job_id, line)
        if not completed:
            self._publisher.letter(flush, task.job_id, dead_letter(task, item.verdict.error, job.updated_ms))
            label = metrics.code(item.code)
            metrics.TASK_FAILURES.labels(code=label).inc()
            metrics.DEAD_LETTERS.labels(code=label).inc()
        self._acknowledge(flush, item.claim)
        self._tell(flush, item, "completed" if completed else "failed", final_due=job.fin == "due")

    def _parked(self, flush: Flush, job: JobSnapshot, item: Item, outcome: str) -> None:
        claim = item.claim
        if item.logs:
            self._own_logs(flush, job, item)
        else:
            self._publisher.log(flush, claim.task.job_id, put_off_line(item, job.updated_ms))
        park(flush, item, self._publisher.lanes[claim.partition], self._consumer)
        self._tell(flush, item, outcome)

    def _failed_before(self, flush: Flush, job: JobSnapshot, task: Any, error: bytes) -> None:
        self._publisher.log(flush, task.job_id, failed_line(task, job.updated_ms, error))
        self._publisher.letter(flush, task.job_id, dead_letter(task, error, job.updated_ms))

    def _refused(self, flush: Flush, items: Sequence[Item], reason: str) -> None:
        """The record cannot be moved at all (a foreign key of its name): the tasks wait in the dead letters."""
        for item in items:
            task = item.claim.task
            error = error_json("SYSTEM_INTERNAL", f"the job's record cannot be written: {reason}")
            self._publisher.letter(flush, task.job_id, dead_letter(task, error, 0))
            self._acknowledge(flush, item.claim)
            self._tell(flush, item, "failed")

    def _own_logs(self, flush: Flush, job: JobSnapshot, item: Item) -> None:
        task = item.claim.task
        for line in item.logs:
            line.job_id = task.job_id
            if not line.timestamp_ms:
                line.timestamp_ms = job.updated_ms
            self._publisher.log(flush, task.job_id, line.SerializeToString())

    def _acknowledge(self, flush: Flush, claim: Claim) -> None:
        flush.acknowledge(self._publisher.lanes[claim.partition], claim.entry)

    def _forget(self, flush: Flush, entry: QueueEntry) -> None:
        flush.acknowledge(entry.lane, entry.id)

    def _tell(self, flush: Flush, item: Item, outcome: str, *, final_due: bool = False) -> None:
        flush.told.append((item, outcome, final_due))
