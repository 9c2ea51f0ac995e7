"""One accept, in order.

The idempotency key is claimed (`Once`); the tasks are built by the handler; the document and the tasks are stored side
by side, so that a handler never runs again for a job that has begun; then `Publication` enters the job into outbox and
ledger, tells its status and publishes its tasks; the answer is kept under the key, and only then given. A process that
dies on the way leaves either nothing or a job that the sweep finishes. Whoever repeats the submit with its key gets the
same job.
"""

import asyncio
from dataclasses import replace
from functools import partial

from fetchbox.errors.v1 import errors_pb2
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobResponse
from fetchbox.jobs.jobs_pb2 import JobLog
from ingest_svc import hints, tasks
from ingest_svc.idempotency import KeyClaim
from ingest_svc.job import Job
from ingest_svc.once import Hold, Once, outcome_unknown, unclaimed
from ingest_svc.publication import Publication, Reached
from ingest_svc.reading import JobReading
from ingest_svc.secret_rules import SecretRules
from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.handlers import HandlerRegistry
from kernel.handlers.handler import TAG_CHECKSUM
from kernel.objects import ObjectStore
from kernel.offload import Offload, is_long
from kernel.redis import keys
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("ingest.submit")


class Submitter:
    """Makes jobs of checked manifests."""

    def __init__(
        self,
        once: Once,
        objects: ObjectStore,
        handlers: HandlerRegistry,
        secrets: SecretRules,
        publication: Publication,
        offload: Offload,
        clock: Clock,
        reached: Reached,
    ) -> None:
        self._once = once
        self._objects = objects
        self._handlers = handlers
        self._secrets = secrets
        self._publication = publication
        self._offload = offload
        self._clock = clock
        self._reached = reached

    async def submit(self, proposed: Job, key: str, window_ms: int, reading: JobReading) -> SubmitJobResponse:
        """Accepts a job, once for its key, if it has one; a known key keeps the job id that it has.

        `UNAVAILABLE` where a dependency fails, which leaves the outcome open and says so.
        """
        make = partial(self._make, proposed, reading)
        name = keys.manifest_idempotency(proposed.tenant, proposed.job_type, key)
        claim = KeyClaim(name, reading.digest, proposed.job_id, window_ms)
        try:
            answer = await (self._once.run(claim, make) if key else make(unclaimed(proposed.job_id)))
        except FetchboxError as error:
            if error.reason != errors_pb2.REASON_UNAVAILABLE:
                raise
            raise outcome_unknown(error, key) from error
        return SubmitJobResponse.FromString(answer)

    async def _make(self, proposed: Job, reading: JobReading, hold: Hold) -> bytes:
        job = replace(proposed, job_id=hold.job_id)
        self._reached("claimed")
        kept = None if hold.fresh else await self._objects.get(job.bucket, job.tasks_key)
        built = await self._built(job, reading) if kept is None else tasks.unpack(kept)
        self._reached("built")
        built = await self._stored(job, reading, built, kept is None)
        self._reached("stored")
        await hold.renew()
        warnings = await self._offload.run(is_long(built), lambda: self._warnings(job, reading))
        await self._publication.run(job, built, warnings, fresh=hold.fresh)
        metrics.JOBS_ACCEPTED.labels(job_type=metrics.job_type(job.job_type)).inc()
        metrics.RESOURCES_ACCEPTED.labels(job_type=metrics.job_type(job.job_type)).inc(len(built))
        log.info("job_accepted", job_id=job.job_id, tenant=job.tenant, job_type=job.job_type, resources=len(built))
        answer = SubmitJobResponse(job_id=job.job_id, manifest_key=job.manifest_key, resource_count=len(built))
        return answer.SerializeToString()

    async def _built(self, job: Job, reading: JobReading) -> list[bytes]:
        handler = self._handlers.get(job.job_type)
        if handler is None:
            raise FetchboxError(errors_pb2.REASON_INTERNAL_ERROR, f"the job type {job.job_type!r} has no handler")
        return await tasks.build(handler, job.view(reading), self._offload, self._secrets)

    async def _stored(self, job: Job, reading: JobReading, built: list[bytes], are_new: bool) -> list[bytes]:
        """The tasks as they are stored; they and the document are written side by side."""
        document = self._objects.put(job.bucket, job.document_key, reading.document, content_type="application/json")
        if not are_new:
            await document
            return built
        packed = await self._offload.run(is_long(built), lambda: tasks.pack(built))
        storing = self._objects.put(job.bucket, job.tasks_key, packed, content_type=tasks.CONTENT_TYPE, if_absent=True)
        outcomes = await asyncio.gather(document, storing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if outcomes[1]:
            return built
        # Two submits built at the same time; the tasks of the first are those of the job.
        kept = await self._objects.get(job.bucket, job.tasks_key)
        return tasks.unpack(kept) if kept is not None else built

    def _warnings(self, job: Job, reading: JobReading) -> list[JobLog]:
        wanted = ((resource.id, resource.tags.get(TAG_CHECKSUM, "")) for resource in reading.resources)
        return hints.warnings(job.job_id, job.trace_id, wanted, self._clock.now_ms())
