"""The client of FetchBox: `Client` blocks, `AsyncClient` runs on an event loop. The stubs are `fetchbox.*`."""

from fetchbox_client import _stubs as _stubs  # first: what follows imports the stubs
from fetchbox_client.aio_client import AsyncClient
from fetchbox_client.client import Client
from fetchbox_client.errors import (
    BY_REASON,
    DeadlineExceededError,
    FailedPreconditionError,
    FetchboxError,
    ForbiddenError,
    GoneError,
    IdempotencyConflictError,
    InternalFaultError,
    InvalidPayloadError,
    JobFailedError,
    MethodNotAllowedError,
    NotFoundError,
    PayloadTooLargeError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedJobTypeError,
    UnsupportedMediaTypeError,
    Violation,
)
from fetchbox_client.events import Event, FlowEvent
from fetchbox_client.options import Tls
from fetchbox_client.results import Result, parse_results
from fetchbox_client.retry import RetryPolicy

__all__ = [
    "BY_REASON",
    "AsyncClient",
    "Client",
    "DeadlineExceededError",
    "Event",
    "FailedPreconditionError",
    "FetchboxError",
    "FlowEvent",
    "ForbiddenError",
    "GoneError",
    "IdempotencyConflictError",
    "InternalFaultError",
    "InvalidPayloadError",
    "JobFailedError",
    "MethodNotAllowedError",
    "NotFoundError",
    "PayloadTooLargeError",
    "RateLimitedError",
    "Result",
    "RetryPolicy",
    "Tls",
    "UnauthorizedError",
    "UnavailableError",
    "UnsupportedJobTypeError",
    "UnsupportedMediaTypeError",
    "Violation",
    "parse_results",
]
