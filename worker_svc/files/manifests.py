"""A file that is a manifest (`*.manifest.json`): it is submitted to ingest instead of being stored.

The idempotency key is the job's id with the digest of the document, so that a job that is delivered twice, by a retry
or after a crash, makes one fetch job, and a document that was changed between two attempts is no conflict.
"""

from __future__ import annotations

import hashlib

from google.api.httpbody_pb2 import HttpBody

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from kernel.ids import is_key_safe
from kernel.queue.work.file_job import FileJob
from kernel.telemetry.logs import get_logger
from worker_svc.files.failure import FileFailure, failure
from worker_svc.files.opening import OpenFile
from worker_svc.files.roots import Roots
from worker_svc.files.threads import Threads
from worker_svc.ingest_client import IngestClient, SubmitFailure

log = get_logger("worker.files")

SUFFIX = ".manifest.json"
"""What the name of a manifest ends with."""


class Manifests:
    """Submits for one worker process, over one channel."""

    def __init__(self, config: Config, roots: Roots, threads: Threads) -> None:
        self._client = IngestClient(config)
        self._job_type = config.worker.manifest_job_type
        self._limit = config.ingest.max_document_bytes
        self._roots = roots
        self._threads = threads

    async def submit(self, job: FileJob) -> str:
        """The id of the fetch job. FileFailure with the file's fault, or with what ingest said."""
        document = await self._threads.run(lambda: self._read(job))
        request = SubmitJobRequest(
            job_type=self._job_type,
            idempotency_key=_key(job, document),
            document=HttpBody(content_type="application/json", data=document),
        )
        try:
            answer = await self._client.submit(request)
        except SubmitFailure as told:
            # What says nothing of the manifest costs no attempt.
            raise FileFailure(told.code, told.message, told.later, counts=told.later is None) from told
        log.info("manifest_submitted", job_id=job.id, resources=answer.resource_count, key=answer.manifest_key)
        return str(answer.job_id)

    async def close(self) -> None:
        """Ends every call; safe twice."""
        await self._client.close()

    def _read(self, job: FileJob) -> bytes:
        file = OpenFile(self._roots.place(job.filepath))
        try:
            if file.size > self._limit:
                told = f"the manifest has {file.size:,} bytes, and ingest.max_document_bytes allows {self._limit:,}"
                raise failure(codes.FAILURE_CODE_VALIDATION_MANIFEST, told)
            document = file.whole()
            file.same_as_opened()
            return document
        finally:
            file.close()


def _key(job: FileJob, document: bytes) -> str:
    digest = hashlib.sha256(document).hexdigest()
    name = job.id if is_key_safe(job.id) else f"~{hashlib.sha256(job.id.encode()).hexdigest()}"
    return f"file:{name}:{digest}"
