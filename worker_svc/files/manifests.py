"""A file that is a manifest (`*.manifest.json`): it is submitted to ingest instead of being stored.

The idempotency key is the job's id with the digest of the document, so that a job that is delivered twice, by a retry
or after a crash, makes one fetch job, and a document that was changed between two attempts is no conflict.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import grpc
from google.api.httpbody_pb2 import HttpBody
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from kernel.config import seconds
from kernel.errors import failure_name, mapping, reason_of
from kernel.grpc_channel import open_channel
from kernel.ids import is_key_safe
from kernel.lists.job import FileJob
from kernel.telemetry import tracing
from kernel.telemetry.logs import get_logger
from worker_svc.files.failure import FileFailure, failure
from worker_svc.files.opening import OpenFile
from worker_svc.files.roots import Roots
from worker_svc.files.threads import Threads

if TYPE_CHECKING:
    from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceAsyncStub

log = get_logger("worker.files")

SUFFIX = ".manifest.json"
"""What the name of a manifest ends with."""

_CALL_SECONDS = 60.0
_UNREACHABLE = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED}
)
_REFUSALS = frozenset(
    {
        codes.REASON_INVALID_PAYLOAD,
        codes.REASON_UNSUPPORTED_JOB_TYPE,
        codes.REASON_IDEMPOTENCY_CONFLICT,
        codes.REASON_PAYLOAD_TOO_LARGE,
        codes.REASON_UNSUPPORTED_MEDIA_TYPE,
    }
)
_CREDENTIALS = frozenset({codes.REASON_UNAUTHORIZED, codes.REASON_FORBIDDEN})
_WITHOUT_REASON = {
    grpc.StatusCode.UNAUTHENTICATED: codes.REASON_UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: codes.REASON_FORBIDDEN,
    grpc.StatusCode.INVALID_ARGUMENT: codes.REASON_INVALID_PAYLOAD,
}


class Manifests:
    """Submits for one worker process, over one channel."""

    def __init__(self, config: Config, roots: Roots, threads: Threads) -> None:
        worker = config.worker
        self._target = worker.ingest
        self._tls = config.security.tls
        self._token = worker.ingest_token
        self._job_type = worker.manifest_job_type
        self._limit = config.ingest.max_document_bytes
        self._pause = seconds(worker.backoff.max)
        self._roots = roots
        self._threads = threads
        self._channel: grpc.aio.Channel | None = None

    async def submit(self, job: FileJob) -> str:
        """The id of the fetch job. FileFailure with the file's fault, or with what ingest said."""
        document = await self._threads.run(lambda: self._read(job))
        request = SubmitJobRequest(
            job_type=self._job_type,
            idempotency_key=_key(job, document),
            document=HttpBody(content_type="application/json", data=document),
        )
        try:
            answer = await self._stub().SubmitJob(request, metadata=self._metadata(), timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self._told(error) from error
        log.info("manifest_submitted", job_id=job.id, resources=answer.resource_count, key=answer.manifest_key)
        return str(answer.job_id)

    async def close(self) -> None:
        """Ends every call; safe twice."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

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

    def _stub(self) -> IngestServiceAsyncStub:
        if self._channel is None:
            try:
                self._channel = open_channel(self._target, self._tls)
            except OSError as error:
                told = f"a file of security.tls cannot be read: {error.strerror}"
                raise failure(codes.FAILURE_CODE_AUTH_INGEST, told) from error
        return IngestServiceStub(self._channel)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        pairs = (
            ("authorization", f"Bearer {self._token}" if self._token else ""),
            ("traceparent", tracing.traceparent()),
        )
        return tuple(pair for pair in pairs if pair[1])

    def _told(self, error: grpc.aio.AioRpcError) -> FileFailure:
        """What a call came to, as the failure of the job."""
        status = rpc_status.from_call(error)
        reason = _reason(status) or _WITHOUT_REASON.get(error.code())
        message = f"ingest at {self._target}: {error.details() or error.code().name}"
        if reason in _CREDENTIALS:
            return failure(codes.FAILURE_CODE_AUTH_INGEST, message)
        if reason in _REFUSALS:
            return failure(codes.FAILURE_CODE_VALIDATION_MANIFEST, message)
        if reason == codes.REASON_RATE_LIMITED:
            return self._later(failure_name(codes.FAILURE_CODE_HANDLER_HTTP, 429), message, _retry_after(status))
        if error.code() in _UNREACHABLE:
            # Our own service is away, or the outcome of the call is: the next attempt has the same idempotency key.
            return self._later(failure_name(codes.FAILURE_CODE_HANDLER_CONNECTION), message, _retry_after(status))
        if reason is None:
            return failure(codes.FAILURE_CODE_HANDLER_PROTOCOL, message)
        return FileFailure(failure_name(codes.FAILURE_CODE_HANDLER_HTTP, mapping(reason).http_status), message)

    def _later(self, code: str, message: str, asked: float | None) -> FileFailure:
        """A failure that costs no attempt: it says nothing of the manifest."""
        return FileFailure(code, message, self._pause if asked is None else asked, counts=False)


def _key(job: FileJob, document: bytes) -> str:
    digest = hashlib.sha256(document).hexdigest()
    name = job.id if is_key_safe(job.id) else f"~{hashlib.sha256(job.id.encode()).hexdigest()}"
    return f"file:{name}:{digest}"


def _reason(status: Status | None) -> codes.Reason.ValueType | None:
    info = ErrorInfo()
    return reason_of(info.reason) if _unpack(status, info) else None


def _retry_after(status: Status | None) -> float | None:
    info = RetryInfo()
    return info.retry_delay.ToNanoseconds() / 1e9 if _unpack(status, info) else None


def _unpack(status: Status | None, detail: ErrorInfo | RetryInfo) -> bool:
    return any(packed.Unpack(detail) for packed in (status.details if status is not None else ()))
