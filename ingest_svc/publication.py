"""The second half of an accept: from stored tasks to a job that workers find. The submit and the sweep both run it.

Each step may be repeated. The outbox entry comes first and goes with the tasks, in one script, so that they are
published once, whoever dies when, and whoever takes over.
"""

from collections.abc import Callable, Sequence

from fetchbox.jobs.jobs_pb2 import JobLog
from ingest_svc.job import Job
from kernel.ledger import Ledger, job_status
from kernel.log.topics import Topics
from kernel.redis import keys
from kernel.telemetry import metrics

Reached = Callable[[str], None]
"""Called with the name of each step that is done; tests kill the process there."""


class Publication:
    """Ledger and streams of accepted jobs."""

    def __init__(self, ledger: Ledger, topics: Topics, reached: Reached) -> None:
        self._ledger = ledger
        self._topics = topics
        self._reached = reached

    async def run(self, job: Job, tasks: Sequence[bytes], warnings: Sequence[JobLog], *, fresh: bool) -> bool:
        """Enters the job into the ledger and publishes its tasks; False where another has published them.

        `fresh` says that nobody else can know the job yet. Otherwise a record without an outbox entry means that all
        of this was done before, and a new entry would publish the tasks again.
        """
        if fresh or await self._ledger.get(job.job_id) is None:
            await self._ledger.enter_outbox(job.job_id)
        self._reached("outbox")
        await self._ledger.accept(job.record(len(tasks)))
        self._reached("accepted")
        await self._tell(job, warnings)
        self._reached("told")
        published = await self._ledger.publish(job.job_id, tasks, job.traceparent)
        if published:
            metrics.JOBS_PRODUCED.labels(keys.TASKS).inc(len(tasks))
        self._reached("published")
        return published

    async def _tell(self, job: Job, warnings: Sequence[JobLog]) -> None:
        record = await self._ledger.get(job.job_id)
        if record is not None:
            await self._topics.status.publish(job_status(record), traceparent=job.traceparent)
        if warnings:
            await self._topics.logs.publish_many(warnings)
