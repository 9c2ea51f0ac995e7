"""What happens around every RPC of ours: who calls, is the request valid, and how an error leaves."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status
from prometheus_client import Histogram

from fetchbox.errors.v1 import errors_pb2
from kernel import rpc_wait
from kernel.auth import Authenticator
from kernel.errors import FetchboxError, to_status
from kernel.telemetry import context as about
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from kernel.validation import require_valid

events = get_logger("rpc")
_CANCELLED = "CANCELLED"
"""The code of an RPC whose client has left."""
_Handler = Any  # grpc has no public type for a method handler that types its behaviour
_Context = grpc.aio.ServicerContext[Any, Any]


class ServiceInterceptor(grpc.aio.ServerInterceptor):
    """Admits, validates, measures and translates errors: the only place where an error becomes a gRPC status."""

    def __init__(
        self,
        authenticator: Authenticator,
        roles: frozenset[str],
        full_names: tuple[str, ...],
        *,
        validate: bool,
        open_methods: frozenset[str] = frozenset(),
    ) -> None:
        self._authenticator = authenticator
        self._roles = roles
        self._prefixes = tuple(f"/{name}/" for name in full_names)
        self._validate = validate
        self._open_methods = open_methods

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[_Handler]], handler_call_details: Any
    ) -> _Handler:
        """Wraps the methods of our services; health and reflection pass as they are."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or not method.startswith(self._prefixes):
            return handler
        wrap = _stream_handler if handler.response_streaming else _unary_handler
        return wrap(handler, method, partial(self._before, method))

    def _before(self, method: str, request: Message, context: _Context) -> None:
        metadata = dict(context.invocation_metadata() or ())
        about.about_request(about.request_id(str(metadata.get(about.REQUEST_ID, ""))))
        rpc_wait.begin(context.time_remaining())
        self._authenticator.admit(metadata, self._roles, to_strangers=method in self._open_methods)
        if self._validate:
            require_valid(request)


_Before = Callable[[Message, _Context], None]


def _unary_handler(handler: _Handler, method: str, before: _Before) -> _Handler:
    behaviour = handler.unary_unary

    async def serve(request: Message, context: _Context) -> Message:
        started = time.monotonic()
        try:
            before(request, context)
            response: Message = await behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - every error leaves as a status
            await _abort(error, method, started, context)
        except asyncio.CancelledError:
            _measure(method, _CANCELLED, started)
            raise
        _measure(method, "OK", started)
        return response

    return grpc.unary_unary_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


def _stream_handler(handler: _Handler, method: str, before: _Before) -> _Handler:
    behaviour = handler.unary_stream

    async def serve(request: Message, context: _Context) -> AsyncIterator[Message]:
        started = time.monotonic()
        try:
            before(request, context)
            async for response in behaviour(request, context):
                yield response
        except Exception as error:  # noqa: BLE001 - every error leaves as a status
            await _abort(error, method, started, context, metrics.GRPC_STREAM_SECONDS)
        except (asyncio.CancelledError, GeneratorExit):
            _measure(method, _CANCELLED, started, metrics.GRPC_STREAM_SECONDS)
            raise
        _measure(method, "OK", started, metrics.GRPC_STREAM_SECONDS)

    return grpc.unary_stream_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


async def _abort(
    error: Exception, method: str, started: float, context: _Context, taken: Histogram = metrics.GRPC_SECONDS
) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, FetchboxError):
        events.exception("rpc_failed", error, method=method)
        error = FetchboxError(errors_pb2.REASON_INTERNAL_ERROR, "FetchBox failed; its log has the details")
    status = rpc_status.to_status(to_status(error))
    _measure(method, status.code.name, started, taken)
    await context.abort_with_status(status)


def _measure(method: str, code: str, started: float, taken: Histogram = metrics.GRPC_SECONDS) -> None:
    taken.labels(method, code).observe(time.monotonic() - started)
