"""What a client orders with CreateJob: the request, its metadata and the caller's credential, checked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from buf.validate import validate_pb2
from fetchbox.config.v1.config_pb2 import Config, Tasks
from fetchbox.errors.v1 import errors_pb2
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest
from ingest_svc.origin import traceparent_of
from ingest_svc.request import Headers, refused
from ingest_svc.strict_json import JsonError, read_object
from kernel.auth import Caller
from kernel.by_value import by_value
from kernel.config.loading import task
from kernel.durations import millis
from kernel.errors import FetchboxError, Violation
from kernel.ids import uuid7
from kernel.ledger.task_queue import NewTask
from kernel.telemetry import tracing
from kernel.validation import require_valid

IDEMPOTENCY_KEY = "idempotency-key"
HEAVY_BYTES = 16_384
"""Payloads below this are read on the event loop."""


_KEY = re.compile(
    CreateJobRequest.DESCRIPTOR.fields_by_name["idempotency_key"]
    .GetOptions()
    .Extensions[validate_pb2.field]
    .string.pattern
)
"""The rule of the field holds for the metadata too, so it is read from the proto."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What the headers of a call say of all that it orders."""

    caller: Caller
    traceparent: str
    trace_id: str
    idempotency_key: str | None
    """The metadata `idempotency-key`; None where it is not sent."""

    @classmethod
    def of(cls, metadata: Sequence[tuple[str, str | bytes]], caller: Caller) -> "Sender":
        """Of a call; raises the refusal of a header that says two things."""
        parent = traceparent_of(metadata)
        return cls(caller, parent, tracing.trace_id(parent), Headers(metadata).get(IDEMPOTENCY_KEY))

    def require_no_key(self) -> None:
        """Refuses a key in the headers of a call that orders more than one job."""
        if self.idempotency_key is not None:
            raise refused(IDEMPOTENCY_KEY, "is for one job: here each job names its own", "header.batch")


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """One task to be run, whoever asks how often."""

    new: NewTask
    """The job as this request would make it."""
    idempotency_key: str
    """Empty for none."""
    digest: str
    """SHA-256, hex, of all that a repetition has in common: what an idempotency key is bound to; empty without one, and
    until the payload is checked."""
    window_ms: int
    """How long the key is remembered."""


def read_order(request: CreateJobRequest, sender: Sender, config: Config) -> TaskOrder:
    """The order of a request, its payload not yet looked into; raises the refusal of whatever is wrong with it."""
    require_valid(request)
    if task(config, request.task) is None:
        raise FetchboxError(
            errors_pb2.REASON_UNSUPPORTED_JOB_TYPE,
            f"no handler is configured for the task {request.task!r}: add a table [tasks.{request.task}] "
            "with its handler or endpoint to the configuration",
        )
    key, tenant = key_of(request.idempotency_key, sender.idempotency_key), sender.caller.tenant
    new = NewTask(
        job_id=uuid7(),
        task=request.task,
        payload=request.payload,
        ttl_s=request.ttl_s if request.HasField("ttl_s") else config.tasks.job_ttl_s,
        tenant=tenant,
        trace_id=sender.trace_id,
        traceparent=sender.traceparent,
    )
    return TaskOrder(new, idempotency_key=key, digest="", window_ms=_window_ms(tenant, config) if key else 0)


def _window_ms(tenant: str, config: Config) -> int:
    return millis(config.ingest.idempotency_window_by_tenant.get(tenant, config.ingest.idempotency_window))


def checked(order: TaskOrder, request: CreateJobRequest, limits: Tasks) -> TaskOrder:
    """The order of a request with its payload checked, and then bound to its idempotency key, if it has one."""
    check_payload(order.new.payload, limits)
    return replace(order, digest=_digest(request, order.new.tenant)) if order.idempotency_key else order


def check_payload(payload: bytes, limits: Tasks) -> None:
    """Raises `PAYLOAD_TOO_LARGE`, or `INVALID_PAYLOAD` for anything but a JSON object in which nothing is doubtful."""
    if len(payload) > limits.max_payload_bytes:
        raise FetchboxError(
            errors_pb2.REASON_PAYLOAD_TOO_LARGE,
            f"payload: has {len(payload)} bytes, and at most {limits.max_payload_bytes} are allowed",
            (Violation("payload", f"must have at most {limits.max_payload_bytes} bytes", "bytes.max_len"),),
        )
    try:
        read_object(payload, "payload")
    except JsonError as fault:
        raise refused(fault.path, fault.description, fault.rule) from fault


def key_of(named: str, sent: str | None) -> str:
    """The idempotency key: the one that a request names or that of its metadata, which must not differ."""
    if sent is None:
        return named
    if _KEY.fullmatch(sent) is None:
        raise refused(IDEMPOTENCY_KEY, f"does not match {_KEY.pattern}", "string.pattern")
    if named and named != sent:
        raise refused("idempotency_key", f"is another one than that of the header {IDEMPOTENCY_KEY}", "header.differs")
    return sent


def _digest(request: CreateJobRequest, tenant: str) -> str:
    """Of the payload by its value: the same JSON with other spaces is the same request."""
    ttl = str(request.ttl_s) if request.HasField("ttl_s") else ""
    return sha256(
        b"\0".join((request.task.encode(), ttl.encode(), tenant.encode(), by_value(request.payload)))
    ).hexdigest()
