"""Submits manifests to ingest as any client would: over gRPC, with the worker's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest, SubmitJobResponse
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from kernel.durations import seconds
from kernel.errors import failure_name, mapping, reason_of
from kernel.rpc.channel import open_channel
from kernel.telemetry import tracing

if TYPE_CHECKING:
    from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceAsyncStub

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


class SubmitFailure(Exception):  # noqa: N818 - it is the outcome of a submit, not a fault of the program
    """What a submit came to instead of a job. `message` is for people.

    `later`: it says nothing of the manifest; the same submit, with the same idempotency key, may go well after so many
    seconds. None: that is up to `code`.
    """

    def __init__(self, code: str, message: str, later: float | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.later = later


class IngestClient:
    """Submits for one worker process, over one channel."""

    def __init__(self, config: Config) -> None:
        worker = config.worker
        self._target = worker.ingest
        self._tls = config.security.tls
        self._token = worker.ingest_token
        self._pause = seconds(worker.backoff.max)
        self._channel: grpc.aio.Channel | None = None

    async def submit(self, request: SubmitJobRequest, patience: float = _CALL_SECONDS) -> SubmitJobResponse:
        """The job of a request; `patience` in seconds. SubmitFailure with what ingest said, or did not."""
        try:
            return await self._stub().SubmitJob(request, metadata=self._metadata(), timeout=patience)
        except grpc.aio.AioRpcError as error:
            raise self._told(error) from error

    async def close(self) -> None:
        """Ends every call; safe twice."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _stub(self) -> IngestServiceAsyncStub:
        if self._channel is None:
            try:
                self._channel = open_channel(self._target, self._tls)
            except OSError as error:
                told = f"a file of security.tls cannot be read: {error.strerror}"
                raise SubmitFailure(failure_name(codes.FAILURE_CODE_AUTH_INGEST), told) from error
        return IngestServiceStub(self._channel)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        pairs = (
            ("authorization", f"Bearer {self._token}" if self._token else ""),
            ("traceparent", tracing.traceparent()),
        )
        return tuple(pair for pair in pairs if pair[1])

    def _told(self, error: grpc.aio.AioRpcError) -> SubmitFailure:
        """What a call came to."""
        status = rpc_status.from_call(error)
        reason = _reason(status) or _WITHOUT_REASON.get(error.code())
        message = f"ingest at {self._target}: {error.details() or error.code().name}"
        if reason in _CREDENTIALS:
            return SubmitFailure(failure_name(codes.FAILURE_CODE_AUTH_INGEST), message)
        if reason in _REFUSALS:
            return SubmitFailure(failure_name(codes.FAILURE_CODE_VALIDATION_MANIFEST), message)
        if reason == codes.REASON_RATE_LIMITED:
            code = failure_name(codes.FAILURE_CODE_HANDLER_HTTP, 429)
            return SubmitFailure(code, message, self._later(status))
        if error.code() in _UNREACHABLE:
            # Our own service is away, or the outcome of the call is: the next attempt has the same idempotency key.
            return SubmitFailure(failure_name(codes.FAILURE_CODE_HANDLER_CONNECTION), message, self._later(status))
        if reason is None:
            return SubmitFailure(failure_name(codes.FAILURE_CODE_HANDLER_PROTOCOL), message)
        return SubmitFailure(failure_name(codes.FAILURE_CODE_HANDLER_HTTP, mapping(reason).http_status), message)

    def _later(self, status: Status | None) -> float:
        asked = _retry_after(status)
        return self._pause if asked is None else asked


def _reason(status: Status | None) -> codes.Reason.ValueType | None:
    info = ErrorInfo()
    return reason_of(info.reason) if _unpack(status, info) else None


def _retry_after(status: Status | None) -> float | None:
    info = RetryInfo()
    return info.retry_delay.ToNanoseconds() / 1e9 if _unpack(status, info) else None


def _unpack(status: Status | None, detail: ErrorInfo | RetryInfo) -> bool:
    return any(packed.Unpack(detail) for packed in (status.details if status is not None else ()))
