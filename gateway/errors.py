"""Errors as HTTP: a `google.rpc.Status`, of a service or of the gateway itself, becomes one form of answer.

The body is the Status as JSON, or RFC 9457 problem details with the same facts for who asks for them. The HTTP status
is that of the `ErrorInfo` reason (`fetchbox.errors.v1`), or of the gRPC code for reasons that are not ours.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import grpc
import orjson
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from fetchbox.errors.v1 import errors_pb2
from gateway.answer import JSON
from gateway.body import CODINGS
from gateway.codec import Codec
from gateway.mismatch import MismatchError
from kernel.errors import DOMAIN, FetchboxError, Violation, invalid, mapping, reason_of, to_status

PROBLEM = "application/problem+json"
ERROR_HEADER = "x-fetchbox-error"

_OVER = "Deadline Exceeded"
"""What the channel says of a call whose deadline has passed here."""
_DETAILS_KEY = "grpc-status-details-bin"
_BY_CODE: Mapping[int, int] = {
    code_pb2.CANCELLED: 499,
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.DEADLINE_EXCEEDED: 504,
    code_pb2.NOT_FOUND: 404,
    code_pb2.ALREADY_EXISTS: 409,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.FAILED_PRECONDITION: 400,
    code_pb2.ABORTED: 409,
    code_pb2.OUT_OF_RANGE: 400,
    code_pb2.UNIMPLEMENTED: 501,
    code_pb2.UNAVAILABLE: 503,
    code_pb2.UNAUTHENTICATED: 401,
}
"""google/rpc/code.proto, "HTTP Mapping"; everything else is 500."""

_NO_GRPC = re.compile(r"Received http2 header with status: [0-9]{3}|invalid content-type", re.IGNORECASE)
"""Texts of the gRPC library about an answer that is none of gRPC's."""

_OF_THE_CHANNEL = re.compile(
    r"\b(?:ipv4|ipv6|unix|dns):|failed to connect|Stream removed|Socket closed|GOAWAY|Connection reset|"
    r"DNS resolution failed|Ping timeout|keepalive|End of TCP stream|RST_STREAM|Channel closed|SSL|handshake",
    re.IGNORECASE,
)
"""Texts of the gRPC library itself, which tell addresses of the inside."""


class DeadlineError(Exception):
    """The client left no time for the call."""


@dataclass(frozen=True, slots=True)
class GatewayFailure:
    """One error, ready to be answered."""

    status: Status
    http_status: int
    word: str
    """The reason, or the name of the gRPC code where there is none of ours: the header `x-fetchbox-error`."""
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """A failure that is ready already."""

    def __init__(self, failure: GatewayFailure) -> None:
        super().__init__(failure.status.message)
        self.failure = failure


def of_error(error: Exception) -> GatewayFailure:
    """The failure behind an exception of the gateway's own code or of an upstream call."""
    if isinstance(error, grpc.aio.AioRpcError):
        return _of_call(error)
    if isinstance(error, FetchboxError):
        return _of_status(to_status(error))
    if isinstance(error, MismatchError):
        return _of_status(to_status(_invalid(error)))
    if isinstance(error, RefusedError):
        return error.failure
    if isinstance(error, DeadlineError):
        return _of_status(Status(code=code_pb2.DEADLINE_EXCEEDED, message="the call's time was over before it began"))
    return _of_status(to_status(internal()))


def late(error: grpc.aio.AioRpcError) -> Exception:
    """What a call came to that had no deadline but the gateway's: beyond it the service hangs; the answer says so."""
    if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or error.details() != _OVER:
        return error
    text = "the service did not answer in time, and what became of the call is unknown: try again, a submit with the "
    return FetchboxError(errors_pb2.REASON_UNAVAILABLE, f"{text}same idempotency key", retry_after=1.0)


def internal() -> FetchboxError:
    """A fault of the platform; what it was stays inside."""
    return FetchboxError(errors_pb2.REASON_INTERNAL_ERROR, "FetchBox failed; its log has the details")


def not_found(path: str) -> GatewayFailure:
    """No route has this path."""
    shown = path[:200]
    return _of_status(to_status(FetchboxError(errors_pb2.REASON_NOT_FOUND, f"there is nothing at {shown}")))


def not_allowed(http_method: str, allowed: list[str]) -> GatewayFailure:
    """The path has routes, but not for this method."""
    methods = ", ".join(allowed)
    error = FetchboxError(errors_pb2.REASON_METHOD_NOT_ALLOWED, f"{http_method} is not possible here, only {methods}")
    failure = _of_status(to_status(error))
    return GatewayFailure(failure.status, failure.http_status, failure.word, {"Allow": methods})


def _invalid(error: MismatchError) -> FetchboxError:
    if not error.path:
        return invalid(f"the request {error.problem}")
    return invalid(f"{error.path}: {error.problem}", (Violation(error.path, error.problem),))


def _of_call(error: grpc.aio.AioRpcError) -> GatewayFailure:
    if not _NO_GRPC.search(error.details() or ""):
        return _of_status(_upstream_status(error))
    text = "something answers in place of the service that does not speak gRPC: try again later"
    failure = _of_status(to_status(FetchboxError(errors_pb2.REASON_UNAVAILABLE, text)))
    return GatewayFailure(failure.status, HTTPStatus.BAD_GATEWAY, failure.word, failure.headers)


def _upstream_status(error: grpc.aio.AioRpcError) -> Status:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            try:
                return Status.FromString(value if isinstance(value, bytes) else value.encode("latin-1"))
            except DecodeError:
                break
    code = error.code().value[0]
    message = error.details() or ""
    if code == code_pb2.DEADLINE_EXCEEDED and message == _OVER:
        text = "the call did not end within the time that its grpc-timeout gave it; what became of it is unknown"
        return Status(code=code, message=text)
    if not _OF_THE_CHANNEL.search(message):
        return Status(code=code, message=message)
    if code in (code_pb2.UNAVAILABLE, code_pb2.CANCELLED, code_pb2.UNKNOWN):
        text = "the service does not answer now: try again, a submit with the same idempotency key"
        return to_status(FetchboxError(errors_pb2.REASON_UNAVAILABLE, text))
    return to_status(internal())


def _of_status(status: Status) -> GatewayFailure:
    headers: dict[str, str] = {}
    word = ""
    http_status = _BY_CODE.get(status.code, 500)
    for detail in status.details:
        info, retry = ErrorInfo(), RetryInfo()
        if _unpack(detail, info) and info.domain == DOMAIN and not word:
            reason = reason_of(info.reason)
            word = info.reason if reason is not None else ""
            http_status = http_status if reason is None else mapping(reason).http_status
        elif _unpack(detail, retry):
            delay = retry.retry_delay
            headers["Retry-After"] = str(max(0, delay.seconds + (delay.nanos > 0)))
    if http_status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("Retry-After", "1")
    if http_status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if http_status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        headers["Accept-Encoding"] = CODINGS
    return GatewayFailure(status, http_status, word or _code_name(status.code), headers)


def _unpack(detail: AnyMessage, message: Any) -> bool:
    try:
        return bool(detail.Unpack(message))
    except DecodeError:
        return False


def _code_name(code: int) -> str:
    return code_pb2.Code.Name(code) if code in code_pb2.Code.values() else "UNKNOWN"


class ErrorPrinter:
    """Prints failures."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def value(self, failure: GatewayFailure) -> dict[str, Any]:
        """The Status as a JSON value."""
        status = failure.status
        code = status.code if status.code in code_pb2.Code.values() else code_pb2.UNKNOWN
        return {
            "code": code,
            "message": status.message,
            "details": [self._detail(detail) for detail in status.details],
        }

    def print(self, failure: GatewayFailure, accept: str) -> tuple[str, bytes]:
        """Content type and body, in the form that `accept` asks for."""
        value = self.value(failure)
        if PROBLEM not in accept.lower():
            return JSON, orjson.dumps(value)
        problem = {
            "type": "about:blank",
            "title": _title(failure.http_status),
            "status": failure.http_status,
            "detail": failure.status.message,
            "reason": failure.word,
            **value,
        }
        return PROBLEM, orjson.dumps(problem)

    def _detail(self, detail: AnyMessage) -> dict[str, Any]:
        """A detail as ProtoJSON; one of a type that is not known here keeps its bytes, as base64."""
        ours = detail.TypeName().startswith("fetchbox.")
        try:
            value: dict[str, Any] = self._codec.value(detail, zeros=ours)
        except MismatchError:
            return {"@type": detail.type_url, "value": base64.b64encode(detail.value).decode("ascii")}
        return value


def _title(http_status: int) -> str:
    try:
        return HTTPStatus(http_status).phrase
    except ValueError:
        return "Client Closed Request"
