"""Telling that a job has ended, on the shared streams."""

from __future__ import annotations

from fetchbox.jobs.jobs_pb2 import LOG_LEVEL_ERROR, LOG_LEVEL_INFO, LOG_LEVEL_WARN, JobLog
from kernel.ledger import JobRecord, job_status
from kernel.log.topics import Topics
from kernel.telemetry import metrics

_LEVELS = {"done": LOG_LEVEL_INFO, "error": LOG_LEVEL_ERROR}


class Announcement:
    """Publishes the end of a job: its last log line, then its last status. It may be repeated."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def __call__(self, record: JobRecord) -> None:
        """One ended job."""
        fields = {
            "status": record.status,
            "resource_total": str(record.resource_total),
            "resource_completed": str(record.resource_completed),
            "resource_failed": str(record.resource_failed),
            "results_key": record.results_key,
        }
        if record.error_code:
            fields |= {"code": record.error_code, "error": record.error_message}
        line = JobLog(
            job_id=record.job_id,
            level=_LEVELS.get(record.status, LOG_LEVEL_WARN),
            message=f"the job has ended: {record.status}",
            fields=fields,
            timestamp_ms=record.updated_ms,
            trace_id=record.trace_id,
        )
        await self._topics.logs.publish(line)
        await self._topics.status.publish(job_status(record))
        metrics.JOBS_ENDED.labels(job_type=metrics.job_type(record.job_type), status=record.status).inc()
