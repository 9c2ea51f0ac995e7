"""What a call was refused with, or failed with: one class a reason of `fetchbox.errors.v1.Reason`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: where, what, and the id of the rule where it has one."""

    field: str
    description: str
    rule: str = ""


@dataclass
class FetchboxError(Exception):
    """A call failed. The class says the reason; `message` says what to do next."""

    message: str
    reason: str = ""
    """`ErrorInfo.reason`, for instance `NOT_FOUND`; the name of the gRPC code where FetchBox did not answer."""
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    violations: tuple[Violation, ...] = ()
    """Each place of the request that breaks a rule."""
    retry_after: float | None = None
    """When to come again, in seconds, where the server says so."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str = ""
    """The key of the call. With it the same request may be repeated without making a second job."""

    def __str__(self) -> str:
        where = "".join(f"; {one.field}: {one.description}" for one in self.violations)
        return f"{self.reason}: {self.message}{where}"


class InvalidPayloadError(FetchboxError):
    """A field or the document breaks a rule; `violations` name each place."""


class UnauthorizedError(FetchboxError):
    """Credentials are required, and are missing or unknown."""


class UnsupportedJobTypeError(FetchboxError):
    """The configuration has no such job type, task or flow."""


class ForbiddenError(FetchboxError):
    """The credential does not permit this."""


class NotFoundError(FetchboxError):
    """There is no such thing, or the caller may not know of it."""


class MethodNotAllowedError(FetchboxError):
    """The service does not have this method."""


class IdempotencyConflictError(FetchboxError):
    """The idempotency key was used with another request."""


class FailedPreconditionError(FetchboxError):
    """The state of the thing does not permit this now."""


class GoneError(FetchboxError):
    """It existed and is over."""


class PayloadTooLargeError(FetchboxError):
    """The document is too large."""


class UnsupportedMediaTypeError(FetchboxError):
    """The document is not of a type that is read."""


class RateLimitedError(FetchboxError):
    """Too many calls or too much waiting work; `retry_after` says when to come again."""


class InternalFaultError(FetchboxError):
    """A fault of FetchBox itself."""


class UnavailableError(FetchboxError):
    """A server cannot be reached, or something that it needs is down. Whether the call had an effect is unknown."""


class DeadlineExceededError(FetchboxError):
    """The deadline of the call passed. Whether the call had an effect is unknown."""


BY_REASON: Mapping[str, type[FetchboxError]] = {
    "INVALID_PAYLOAD": InvalidPayloadError,
    "UNAUTHORIZED": UnauthorizedError,
    "UNSUPPORTED_JOB_TYPE": UnsupportedJobTypeError,
    "FORBIDDEN": ForbiddenError,
    "NOT_FOUND": NotFoundError,
    "METHOD_NOT_ALLOWED": MethodNotAllowedError,
    "IDEMPOTENCY_CONFLICT": IdempotencyConflictError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "GONE": GoneError,
    "PAYLOAD_TOO_LARGE": PayloadTooLargeError,
    "UNSUPPORTED_MEDIA_TYPE": UnsupportedMediaTypeError,
    "RATE_LIMITED": RateLimitedError,
    "INTERNAL_ERROR": InternalFaultError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
}
"""The class of each reason; a reason of a newer server is a plain `FetchboxError`."""


@dataclass
class JobFailedError(Exception):
    """The job whose result was asked for has no result."""

    job_id: str
    status: str
    """`error`, `canceled` or `partial`."""
    code: str
    """Why, a `FailureCode` without its prefix; empty where nothing says."""
    message: str

    def __str__(self) -> str:
        return f"job {self.job_id} ended as {self.status}: {self.code} {self.message}".rstrip()


def from_rpc(code: grpc.StatusCode, text: str, trailing: Iterable[tuple[str, str | bytes]]) -> FetchboxError:
    """The error of a call that ended with `code`; its details are in the trailing metadata."""
    status = _status(dict(trailing).get(_DETAILS))
    found: dict[str, str] = {}
    reason, retry_after = code.name, None
    violations: tuple[Violation, ...] = ()
    for packed in status.details if status else ():
        info, bad, retry = ErrorInfo(), BadRequest(), RetryInfo()
        if packed.Unpack(info):
            reason, found = info.reason, dict(info.metadata)
        elif packed.Unpack(bad):
            violations = tuple(Violation(one.field, one.description, one.reason) for one in bad.field_violations)
        elif packed.Unpack(retry):
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    kind = BY_REASON.get(reason, FetchboxError)
    return kind(status.message if status else text, reason, code, violations, retry_after, found)


def _status(packed: str | bytes | None) -> Status | None:
    try:
        return Status.FromString(packed) if isinstance(packed, bytes) else None
    except DecodeError:
        return None
