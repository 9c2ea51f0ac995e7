"""One exception type for everything that a caller may see, and the tables that come from the proto options.

Kernel code raises `FetchboxError`; one interceptor per server turns it into a gRPC status (`to_status`); the gateway
turns that into HTTP by `http_status`. Nothing else maps errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from fetchbox.errors.v1 import errors_pb2
from fetchbox.errors.v1.errors_pb2 import FailureCode, FailureMapping, Reason, ReasonMapping

DOMAIN = "fetchbox"
"""`ErrorInfo.domain` of every error."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: where (`resources[3].url`), what, and the rule's id where it has one."""

    field: str
    description: str
    rule: str = ""


@dataclass
class FetchboxError(Exception):
    """Something was refused or is not possible now. `message` is for people and says what to do next."""

    reason: Reason.ValueType
    message: str
    violations: tuple[Violation, ...] = ()
    retry_after: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    details: tuple[Message, ...] = ()

    def __str__(self) -> str:
        return f"{reason_name(self.reason)}: {self.message}"


def reason_name(reason: Reason.ValueType) -> str:
    """`INVALID_PAYLOAD` of `REASON_INVALID_PAYLOAD`: the name on the wire."""
    return Reason.Name(reason).removeprefix("REASON_")


def reason_of(name: str) -> Reason.ValueType | None:
    """The reason of a name on the wire; None for a name that is none of ours."""
    try:
        return Reason.Value(f"REASON_{name}")
    except ValueError:
        return None


def mapping(reason: Reason.ValueType) -> ReasonMapping:
    """The gRPC code and HTTP status of a reason, from its proto option."""
    value = Reason.DESCRIPTOR.values_by_number[reason]
    return value.GetOptions().Extensions[errors_pb2.reason]


def invalid(message: str, violations: Iterable[Violation] = ()) -> FetchboxError:
    """The input breaks a rule."""
    return FetchboxError(errors_pb2.REASON_INVALID_PAYLOAD, message, tuple(violations))


def unavailable(message: str) -> FetchboxError:
    """A dependency is down."""
    return FetchboxError(errors_pb2.REASON_UNAVAILABLE, message)


def not_found(message: str) -> FetchboxError:
    """There is no such thing."""
    return FetchboxError(errors_pb2.REASON_NOT_FOUND, message)


def no_job(job_id: str) -> FetchboxError:
    """There is no such job, or the caller may not know of it."""
    return not_found(f"There is no job {job_id}; it is unknown, or its record is no longer kept.")


def no_flow(flow_id: str) -> FetchboxError:
    """There is no such flow run, or the caller may not know of it."""
    return not_found(f"There is no run {flow_id} of a flow; it is unknown, or no longer kept.")


def to_status(error: FetchboxError) -> Status:
    """The error as `google.rpc.Status`, with `ErrorInfo` first and `BadRequest` and `RetryInfo` where they apply."""
    details: list[Message] = [ErrorInfo(reason=reason_name(error.reason), domain=DOMAIN, metadata=error.metadata)]
    if error.violations:
        details.append(_bad_request(error.violations))
    if error.retry_after is not None:
        seconds = int(error.retry_after)
        nanos = int((error.retry_after - seconds) * 1e9)
        details.append(RetryInfo(retry_delay=Duration(seconds=seconds, nanos=nanos)))
    details.extend(error.details)
    status = Status(code=mapping(error.reason).grpc_code, message=error.message)
    status.details.extend(_packed(detail) for detail in details)
    return status


def _bad_request(violations: Iterable[Violation]) -> BadRequest:
    return BadRequest(
        field_violations=[
            BadRequest.FieldViolation(field=v.field, description=v.description, reason=v.rule) for v in violations
        ]
    )


def _packed(detail: Message) -> Any:
    packed = Any()
    packed.Pack(detail)
    return packed


def failure_name(code: FailureCode.ValueType, http_status: int = 0) -> str:
    """`DOWNLOAD_TRUNCATED`, `DOWNLOAD_HTTP_403`: a failure code as streams carry it."""
    name = FailureCode.Name(code).removeprefix("FAILURE_CODE_")
    return f"{name}_{http_status}" if f"{name}_" in _RETRYABLE_HTTP else name


def http_status_of(code: str) -> int:
    """The HTTP status that a failure code names, `DOWNLOAD_HTTP_403`; 0 where it names none."""
    kind, _, number = code.rpartition("_")
    return int(number) if f"{kind}_" in _RETRYABLE_HTTP and number.isdecimal() else 0


def operator_code(code: str) -> str:
    """A failure code as operators see it: `HTTP_403` for an HTTP status."""
    return code.removeprefix("DOWNLOAD_") if code.startswith("DOWNLOAD_HTTP_") else code


_RETRYABLE_HTTP = {
    "DOWNLOAD_HTTP_": frozenset({408, 425, 429}),
    "HANDLER_HTTP_": frozenset({408, 409, 425, 429}),
}
"""The codes that a status follows, and which of them below 500 another attempt may cure."""
_FINAL_HTTP = frozenset({501, 505})


def is_retryable(code: str) -> bool:
    """Whether another attempt may succeed. An unknown code of another's worker counts as retryable."""
    kind, _, number = code.rpartition("_")
    retryable = _RETRYABLE_HTTP.get(f"{kind}_")
    if retryable is not None:
        status = int(number) if number.isdigit() else 0
        return status in retryable or (500 <= status < 600 and status not in _FINAL_HTTP)
    try:
        value = FailureCode.DESCRIPTOR.values_by_name[f"FAILURE_CODE_{code}"]
    except KeyError:
        return True
    options: FailureMapping = value.GetOptions().Extensions[errors_pb2.failure]
    return options.retryable


def is_dependency_fault(code: str) -> bool:
    """Whether a failure speaks of what its task depends on (a host, an endpoint, a store), and not of the task itself.

    Of HTTP statuses those from 500 do. An unknown code of another's handler does not.
    """
    kind, _, number = code.rpartition("_")
    if f"{kind}_" in _RETRYABLE_HTTP:
        return number.isdigit() and 500 <= int(number) < 600
    try:
        value = FailureCode.DESCRIPTOR.values_by_name[f"FAILURE_CODE_{code}"]
    except KeyError:
        return False
    options: FailureMapping = value.GetOptions().Extensions[errors_pb2.failure]
    return options.dependency
