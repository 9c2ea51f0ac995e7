"""Submits the manifests of steps to ingest."""

from __future__ import annotations

from google.api.httpbody_pb2 import HttpBody

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from kernel.config import seconds
from kernel.flows.course import Problem
from kernel.flows.sending import Manifest, Postponed
from worker_svc.ingest_client import IngestClient, SubmitFailure


class Submitting:
    """A duty: submits for the engine of one worker process, over one channel of its own."""

    name = "flow-submits"

    def __init__(self, config: Config) -> None:
        self._client = IngestClient(config)
        # Another engine takes over at the end of the lease; it is told the same job, but why wait for both.
        self._patience = max(1.0, seconds(config.flow_engine.lease) / 2)

    async def start(self) -> None:
        """Connects with the first submit."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: the engine waits for its submits."""

    async def stop(self) -> None:
        """Ends every call; safe twice."""
        await self._client.close()

    async def submit(self, manifest: Manifest) -> str | Problem | Postponed:
        """The id of the job, the same one whenever the same attempt is submitted."""
        request = SubmitJobRequest(
            job_type=manifest.job_type,
            tenant=manifest.tenant,
            idempotency_key=manifest.idempotency_key,
            document=HttpBody(content_type="application/json", data=manifest.document),
        )
        try:
            return (await self._client.submit(request, self._patience)).job_id
        except SubmitFailure as told:
            if told.later is not None:
                return Postponed(told.message, told.later)
            return Problem(told.code, told.message)
