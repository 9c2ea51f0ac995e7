"""Finishes what is in the outbox: submits whose process died between the first and the last step of `Publication`."""

from collections.abc import Iterable

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask
from ingest_svc import hints, tasks
from ingest_svc.job import Job
from ingest_svc.publication import Publication
from kernel import places
from kernel.clock import Clock
from kernel.durations import millis
from kernel.errors import FetchboxError
from kernel.ledger import JobRecord, Ledger
from kernel.objects import ObjectStore
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("ingest.sweep")


class Sweep:
    """Entries older than the submit lease are abandoned: their tasks are read back, and the rest is done for them."""

    def __init__(
        self, config: Config, ledger: Ledger, objects: ObjectStore, publication: Publication, clock: Clock
    ) -> None:
        self._lease_ms = millis(config.ingest.submit_lease)
        self._job_types = tuple(config.job_types)
        self._ledger = ledger
        self._objects = objects
        self._publication = publication
        self._clock = clock

    async def run(self) -> None:
        """One round. What cannot be finished now stays for the next one."""
        for job_id in await self._ledger.outbox(self._lease_ms):
            try:
                await self._finish(job_id)
            except (FetchboxError, ValueError) as error:
                log.warn("sweep_failed", job_id=job_id, error=error)
        metrics.OUTBOX_LENGTH.set(await self._ledger.outbox_length())
        metrics.OUTBOX_OVERDUE.set(await self._ledger.outbox_length(self._lease_ms))

    async def _finish(self, job_id: str) -> None:
        record = await self._ledger.get(job_id)
        packed = await self._stored(job_id, record)
        if packed is None:
            await self._give_up(job_id, record)
            return
        built = tasks.unpack(packed)
        decoded = [DownloadTask.FromString(task) for task in built]
        job = self._job(decoded[0], record)
        wanted = ((task.resource_id, task.attributes.checksum_hint) for task in decoded)
        warnings = hints.warnings(job_id, job.trace_id, wanted, self._clock.now_ms())
        if await self._publication.run(job, built, warnings, fresh=False):
            metrics.OUTBOX_FINISHED.inc()
            log.info("submit_finished", job_id=job_id, job_type=job.job_type, resources=len(built))

    async def _stored(self, job_id: str, record: JobRecord | None) -> bytes | None:
        """The tasks of a job. Without a record its type is not known, but it is one of a few."""
        job_types: Iterable[str] = self._job_types if record is None else (record.job_type,)
        for job_type in job_types:
            bucket = (record and record.bucket) or self._objects.bucket
            packed = await self._objects.get(bucket, places.tasks(job_type, job_id))
            if packed is not None:
                return packed
        return None

    async def _give_up(self, job_id: str, record: JobRecord | None) -> None:
        """Without tasks nothing can be published; nobody got a 202 for a job without a record."""
        if record is None:
            await self._ledger.drop_outbox(job_id)
            log.warn("submit_dropped", job_id=job_id)
        else:
            log.error("tasks_missing", job_id=job_id, job_type=record.job_type)

    def _job(self, task: DownloadTask, record: JobRecord | None) -> Job:
        return Job(
            job_id=task.job_id,
            job_type=task.job_type,
            settings=JobType(),
            bucket=(record and record.bucket) or self._objects.bucket,
            tenant=task.tenant,
            trace_id=task.trace_id,
        )
