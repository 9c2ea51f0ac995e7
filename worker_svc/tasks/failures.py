"""How the work of an endpoint ends badly: its faults as failure codes. Only here are aiohttp's exceptions known."""

from __future__ import annotations

import os
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name
from kernel.handlers import TaskError
from worker_svc.fetch.faults import TRANSPORT_ERRORS, brief

__all__ = ["TRANSPORT_ERRORS", "bad_payload", "connection", "protocol", "status", "too_large", "transport"]

_HTTP_FAULTS: Final = (aiohttp.ClientResponseError, aiohttp.InvalidURL, HttpProcessingError)


def connection(message: str) -> TaskError:
    """The endpoint could not be reached, or hung up."""
    return TaskError(failure_name(codes.FAILURE_CODE_HANDLER_CONNECTION), message)


def silence(message: str) -> TaskError:
    """The endpoint fell silent."""
    return TaskError(failure_name(codes.FAILURE_CODE_HANDLER_TIMEOUT), message)


def protocol(message: str) -> TaskError:
    """The endpoint did not speak its protocol."""
    return TaskError(failure_name(codes.FAILURE_CODE_HANDLER_PROTOCOL), message)


def too_large(limit: int) -> TaskError:
    """The result will not fit into `limit` bytes."""
    return TaskError(failure_name(codes.FAILURE_CODE_HANDLER_RESULT), f"the result is larger than {limit} bytes")


def bad_payload(message: str) -> TaskError:
    """The payload is not what the handler takes."""
    return TaskError(failure_name(codes.FAILURE_CODE_VALIDATION_PAYLOAD), message)


def status(number: int, message: str, retry_after: float | None = None) -> TaskError:
    """The endpoint answered with a status that is no success."""
    return TaskError(failure_name(codes.FAILURE_CODE_HANDLER_HTTP, number), message, retry_after)


def transport(error: Exception) -> TaskError:
    """What asking or reading raised (`TRANSPORT_ERRORS`)."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return connection("connecting to the endpoint took too long")
    if isinstance(error, TimeoutError):
        return silence("the endpoint fell silent")
    if isinstance(error, _HTTP_FAULTS):
        return protocol(f"the endpoint's answer breaks HTTP: {brief(getattr(error, 'message', error))}")
    if isinstance(error, aiohttp.ClientPayloadError):
        return connection("the endpoint hung up within its answer")
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return connection(f"no connection to {error.host}:{error.port}: {_reason(error.os_error)}")
    return connection(f"no connection to the endpoint, or it broke: {brief(error)}")


def _reason(error: OSError) -> str:
    """What the system says; that of a name that cannot be resolved has a negative number, or none."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else brief(error.strerror or error)
