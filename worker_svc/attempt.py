"""What a handler's `run` is lent for one attempt at one task."""

from __future__ import annotations

import hashlib

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import LOG_LEVEL_INFO, DownloadTask, JobLog
from kernel import redaction
from kernel.clock import Clock
from kernel.foreign_text import LONGEST_ALL, fit, fit_fields
from kernel.handlers import StoredObject
from kernel.objects import ObjectStore, s3_uri
from kernel.queue.work.types import Claim
from worker_svc.fetch import Fetcher, policy_of
from worker_svc.fetch.circuit import Turn


class Attempt:
    """One attempt: the `TaskContext` that `kernel.handlers` promises, and the log lines it collects."""

    __slots__ = (
        "_began",
        "_claim",
        "_clock",
        "_config",
        "_fetcher",
        "_objects",
        "_task",
        "attempt",
        "logs",
        "provenance",
    )

    def __init__(
        self, task: DownloadTask, claim: Claim, config: Config, fetcher: Fetcher, objects: ObjectStore, clock: Clock
    ) -> None:
        """`task` is the work of `claim`, made complete."""
        self.attempt = claim.attempt + 1
        """The number of the attempt, from 1."""
        self.logs: list[JobLog] = []
        self.provenance: dict[str, str] = {}
        self._task = task
        self._claim = claim
        self._config = config
        self._fetcher = fetcher
        self._objects = objects
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._clock.monotonic() - self._began

    async def fetch(self, task: DownloadTask) -> StoredObject:
        """Downloads the task's URL to where its object belongs; raises `FetchFailure`."""
        fetched = await self._fetcher.fetch(task, policy_of(self._config, task), Turn(self._claim))
        self.provenance = fetched.provenance()
        return StoredObject(
            key=s3_uri(fetched.bucket, fetched.key),
            size=fetched.size,
            sha256=fetched.sha256,
            content_type=fetched.content_type,
            final_url=fetched.final_url,
            http_status=fetched.http_status,
        )

    async def put(self, task: DownloadTask, body: bytes, content_type: str) -> StoredObject:
        """Stores bytes of the handler's own where the task's object belongs; raises `ObjectStoreError`."""
        policy = policy_of(self._config, task)
        await self._objects.put(policy.bucket, policy.key, body, content_type=content_type, metadata=policy.metadata)
        return StoredObject(
            key=s3_uri(policy.bucket, policy.key),
            size=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            content_type=content_type,
        )

    def log(self, message: str, **fields: str) -> None:
        """Adds a line to the job's log; it is published when the attempt is settled."""
        line = JobLog(
            job_id=self._task.job_id,
            resource_id=self._task.resource_id,
            level=LOG_LEVEL_INFO,
            message=redaction.text(fit(message, LONGEST_ALL)),
            fields=redaction.fields(fit_fields(fields)),
            timestamp_ms=self._clock.now_ms(),
            trace_id=self._task.trace_id,
        )
        self.logs.append(line)
