"""What a client orders with StartFlow: the request, its metadata and the caller's credential, checked."""

from collections.abc import Iterable
from dataclasses import replace

from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1.flow_service_pb2 import StartFlowRequest
from flows.gates.starting import NO_INPUT, Start
from ingest_svc.request import Headers, refused
from ingest_svc.strict_json import JsonError, read_value
from ingest_svc.task_order import IDEMPOTENCY_KEY, key_of
from ingest_svc.task_views import tenant_filter
from kernel.auth import Caller
from kernel.by_value import by_value
from kernel.errors import FetchboxError, Violation
from kernel.validation import require_valid


def read_start(request: StartFlowRequest, metadata: Iterable[tuple[str, str | bytes]], caller: Caller) -> Start:
    """The start of a request, its input not yet looked into; raises the refusal of whatever is wrong with it."""
    require_valid(request)
    return Start(
        flow=request.flow,
        input=request.input if request.HasField("input") else NO_INPUT,
        flow_id=request.flow_id,
        idempotency_key=key_of(request.idempotency_key, Headers(metadata).get(IDEMPOTENCY_KEY)),
        tenant=tenant_filter(caller, request.tenant),
        tags=tuple(request.tags),
    )


def checked(start: Start, most: int) -> Start:
    """The start with its input checked, and what a repetition of it is compared by. Raises as `check_input`."""
    check_input(start.input, most)
    return replace(start, value=by_value(start.input))


def check_input(text: bytes, most: int) -> None:
    """Raises `PAYLOAD_TOO_LARGE`, or `INVALID_PAYLOAD` for anything but a JSON value in which nothing is doubtful."""
    if len(text) >= most:
        told = f"has {len(text)} bytes, and the event that holds it must be shorter than {most}"
        raise FetchboxError(
            errors_pb2.REASON_PAYLOAD_TOO_LARGE, f"input: {told}", (Violation("input", told, "event.size"),)
        )
    try:
        read_value(text, "input")
    except JsonError as fault:
        raise refused(fault.path, fault.description, fault.rule) from fault
