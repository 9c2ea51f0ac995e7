"""`IngestService`: one submit, from the request to the answer.

The envelope is read first, for it is cheap: job type, tenant, idempotency key, coding. Then the document is
decompressed, parsed and checked; then the tenant's rate and the room in the backlog decide whether it is taken; then
`Submitter` makes the job. The interceptor turns what is raised into a status.
"""

import time
from typing import Any

import grpc

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest, SubmitJobResponse
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceServicer
from ingest_svc.job import Job
from ingest_svc.origin import traceparent_of
from ingest_svc.reading import JobReading, is_heavy, read
from ingest_svc.request import Envelope, read_envelope, tenant_of
from ingest_svc.room import Room
from ingest_svc.running import Running
from ingest_svc.secret_rules import SecretRules
from ingest_svc.submit import Submitter
from kernel.auth import current_caller
from kernel.breakers.ratelimit import RateLimit
from kernel.durations import millis
from kernel.errors import FetchboxError, reason_name
from kernel.ids import uuid7
from kernel.offload import Offload
from kernel.telemetry import metrics, tracing


class IngestService(IngestServiceServicer):
    """Takes manifests in."""

    def __init__(
        self,
        config: Config,
        submitter: Submitter,
        rate: RateLimit,
        room: Room,
        offload: Offload,
        running: Running,
    ) -> None:
        self._config = config
        self._secrets = SecretRules(config)
        self._submitter = submitter
        self._rate = rate
        self._room = room
        self._offload = offload
        self._running = running

    async def SubmitJob(  # noqa: N802 - the name of the RPC
        self, request: SubmitJobRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> SubmitJobResponse:
        """Accepts a manifest (`ingest_service.proto`)."""
        started = time.monotonic()
        try:
            return await self._submit(request, tuple(context.invocation_metadata() or ()))
        except FetchboxError as error:
            metrics.JOBS_REFUSED.labels(reason=reason_name(error.reason)).inc()
            raise
        finally:
            metrics.SUBMIT_SECONDS.observe(time.monotonic() - started)

    async def _submit(
        self, request: SubmitJobRequest, metadata: tuple[tuple[str, str | bytes], ...]
    ) -> SubmitJobResponse:
        envelope = read_envelope(request, metadata, current_caller(), self._config)
        limits = self._config.ingest
        reading = await self._offload.run(is_heavy(request), lambda: read(request, envelope.coding, limits))
        job = self._proposed(envelope, reading, metadata)
        self._secrets.require_manifest(reading.resources, job.tenant, job.job_type, job.settings)
        await self._rate.take(job.tenant)
        self._room.require()
        window = limits.idempotency_window_by_tenant.get(job.tenant, limits.idempotency_window)
        work = self._submitter.submit(job, envelope.idempotency_key, millis(window), reading)
        return await self._running.to_the_end(work)

    def _proposed(self, envelope: Envelope, reading: JobReading, metadata: tuple[tuple[str, str | bytes], ...]) -> Job:
        parent = traceparent_of(metadata)
        return Job(
            job_id=uuid7(),
            job_type=envelope.job_type,
            settings=envelope.settings,
            bucket=self._config.object_store.bucket,
            tenant=tenant_of(envelope, reading.parsed_attributes),
            trace_id=tracing.trace_id(parent),
            traceparent=parent,
        )
