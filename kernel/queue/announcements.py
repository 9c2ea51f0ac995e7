"""Publishes what has become of a job: its status, and at its end a log line and, where it is due, a dead letter.

The script that ends a job, or opens it again, notes that this is to be published (`keys.UNPUBLISHED`). Whoever called
it publishes and takes the note back. A worker does so for what it has settled, in its own pipeline; all others by the
`Announcer`, whose sweep publishes what is still noted a while later, since its publisher died.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fetchbox.jobs.jobs_pb2 import LOG_LEVEL_ERROR, LOG_LEVEL_INFO, LOG_LEVEL_WARN, DeadLetterTask, JobLog, QueuedTask
from kernel.ledger import JobRecord, Ledger, job_status
from kernel.ledger.base import TERMINAL
from kernel.ledger.record import FETCH
from kernel.log.topics import Topics
from kernel.queue.streams.publications import completed_line, dead_letter, failed_line, is_dead
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_LEVELS: Final = {"done": LOG_LEVEL_INFO, "error": LOG_LEVEL_ERROR}
_LATE_MS: Final = 10_000
"""How long a note may stand before its publisher counts as dead."""
_BATCH: Final = 100
_log = get_logger(__name__)


class Announcer:
    """Publishes the state of jobs. A repetition is harmless: readers apply only a higher revision."""

    def __init__(self, ledger: Ledger, topics: Topics) -> None:
        self._ledger = ledger
        self._topics = topics

    async def announce(self, job_id: str) -> None:
        """Publishes the job's record as it is now; nothing where there is none."""
        if job_id:
            await self.announce_all([job_id])

    async def announce_all(self, job_ids: Sequence[str]) -> None:
        """Publishes the records of jobs as they are now, those that are gone left out, and what is noted of them."""
        notes = await self._ledger.notes(job_ids)
        records = [record for record in await self._ledger.get_many(job_ids) if record is not None]
        ended = [one for one in records if one.job_id in notes and one.status in TERMINAL and not _is_finalized(one)]
        await self._publish(records, ended)
        await self._ledger.forget_notes(notes)

    async def announce_noted(self, job_id: str) -> None:
        """Publishes the end of a job where that is noted."""
        if await self._ledger.notes([job_id]):
            await self.announce(job_id)

    async def end(self, record: JobRecord) -> None:
        """Publishes the end of a job that was finalized: its last log line, then its last status."""
        await self._publish([record], [record])
        await self._ledger.forget_notes({record.job_id: record.updated_ms})

    async def sweep(self) -> int:
        """Publishes what has been noted for a while; how many jobs that were."""
        swept = 0
        while job_ids := await self._ledger.late_notes(_LATE_MS, _BATCH):
            await self._ledger.repair_ends(job_ids)
            await self.announce_all(job_ids)
            swept += len(job_ids)
        if swept:
            _log.warn("ends_published_late", count=swept)
        return swept

    async def _publish(self, records: Sequence[JobRecord], ended: Sequence[JobRecord]) -> None:
        lines: list[JobLog] = []
        letters: list[DeadLetterTask] = []
        for record in ended:
            task = None if record.task == FETCH else await self._ledger.queued_task(record.job_id)
            lines.append(_line(record, task, await self._attempts(record)))
            if task is not None and record.status == "error" and is_dead(task, record.error_code):
                letter = dead_letter(task, record.error, record.updated_ms)
                letters.append(DeadLetterTask.FromString(letter))
        await self._topics.logs.publish_many(lines)
        await self._topics.dlq.publish_many(letters)
        await self._topics.status.publish_many([job_status(record) for record in records])
        for record in ended:
            metrics.JOBS_ENDED.labels(job_type=metrics.job_type(record.job_type), status=record.status).inc()

    async def _attempts(self, record: JobRecord) -> int:
        """The attempts of a task job that is done, as its last event says."""
        if record.task == FETCH or record.status != "done":
            return 0
        return next((event.attempts for event in await self._ledger.last_events(record.job_id)), 0)


def _is_finalized(record: JobRecord) -> bool:
    """Whether a finalizer is to write down first what became of the resources: it publishes the line."""
    return record.task == FETCH and record.status == "canceled"


def _line(record: JobRecord, task: QueuedTask | None, attempts: int) -> JobLog:
    """The last entry of `jobs.logs` of an ended job."""
    if task is not None and record.status == "done":
        return JobLog.FromString(completed_line(task, record.updated_ms, max(1, attempts)))
    if task is not None and record.status == "error":
        return JobLog.FromString(failed_line(task, record.updated_ms, record.error))
    fields = {"status": record.status}
    if task is None:
        fields["resource_total"] = str(record.resource_total)
        fields["resource_completed"] = str(record.resource_completed)
        fields["resource_failed"] = str(record.resource_failed)
        fields["results_key"] = record.results_key
    if record.error_code:
        fields |= {"code": record.error_code, "error": record.error_message}
    return JobLog(
        job_id=record.job_id,
        level=_LEVELS.get(record.status, LOG_LEVEL_WARN),
        message=f"the job has ended: {record.status}",
        fields=fields,
        timestamp_ms=record.updated_ms,
        trace_id=record.trace_id,
    )
