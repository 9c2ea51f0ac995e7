"""Submits the manifests of steps to ingest."""

from __future__ import annotations

from time import monotonic
from typing import Final

from google.api.httpbody_pb2 import HttpBody

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from flows.engine.sending import Postponed, StepManifest
from flows.model.course import Problem
from kernel.durations import seconds
from kernel.errors import failure_name
from worker_svc.ingest_client import IngestClient, SubmitFailure

_AWAY: Final = failure_name(codes.FAILURE_CODE_HANDLER_CONNECTION)


class Submitting:
    """A duty: submits for the engine of one worker process, over one channel of its own."""

    name = "flow-submits"

    def __init__(self, config: Config) -> None:
        self._client = IngestClient(config)
        self._target = config.worker.ingest
        # Another engine takes over at the end of the lease; it is told the same job, but why wait for both.
        self._patience = max(1.0, seconds(config.flow_engine.lease) / 2)
        self._is_away = False
        self._asks_at = 0.0
        """When to ask again, in monotonic seconds."""

    async def start(self) -> None:
        """Connects with the first submit."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: the engine waits for its submits."""

    async def stop(self) -> None:
        """Ends every call; safe twice."""
        await self._client.close()

    async def submit(self, manifest: StepManifest) -> str | Problem | Postponed:
        """The id of the job, the same one whenever the same attempt is submitted.

        While ingest does not answer, one submit at a time finds out whether it does again: each that waits for it takes
        the place of a run in the engine, and those that need no ingest are to go on.
        """
        pause = self._asks_at - monotonic()
        if pause > 0:
            return Postponed(f"ingest at {self._target} does not answer; it is not asked yet again", pause)
        if self._is_away:
            self._asks_at = monotonic() + self._patience
        request = SubmitJobRequest(
            job_type=manifest.job_type,
            tenant=manifest.tenant,
            idempotency_key=manifest.idempotency_key,
            document=HttpBody(content_type="application/json", data=manifest.document),
        )
        try:
            job_id: str = (await self._client.submit(request, self._patience)).job_id
        except SubmitFailure as told:
            self._note(told.later or 0 if told.code == _AWAY else None)
            if told.later is not None:
                return Postponed(told.message, told.later)
            return Problem(told.code, told.message)
        self._note(None)
        return job_id

    def _note(self, pause: float | None) -> None:
        """Ingest does not answer, and is left alone for so many seconds; None: it does."""
        self._is_away = pause is not None
        self._asks_at = monotonic() + pause if pause is not None else 0.0
