"""What happens around every RPC of ours: who calls, is the request valid, and how an error leaves.

The story of one call: its headers say who calls, and a limit whether one more is served; who is refused gets a handler
that asks for no message. Until one is asked for, gRPC's flow control holds it back, so a refused call costs no more
than its headers. Then the message is parsed and checked, and the method runs. A stranger, who may call some methods
without a token, has to send a small message within a time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status
from prometheus_client import Histogram

from fetchbox.errors.v1 import errors_pb2
from kernel import rpc_wait
from kernel.auth import STRANGER, Authenticator, Caller, set_caller
from kernel.errors import FetchboxError, invalid, to_status, unavailable
from kernel.rpc.calls import CallLimits, refused
from kernel.telemetry import context as about
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from kernel.validation import require_valid

events = get_logger("rpc")
_STOPS = "this server stops; another one, or it again, goes on with the stream"
_CANCELLED = "CANCELLED"
"""The code of an RPC whose client has left."""
_FIELDS_BYTES = 64 << 10
"""The room that a stranger's request has for fields beside its document."""
_Handler = Any  # grpc has no public type for a method handler that types its behaviour
_Context = grpc.aio.ServicerContext[Any, Any]
_Messages = AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class StrangerLimits:
    """What the message of a caller without a token may cost."""

    seconds: float
    """How long it may take to come."""
    max_bytes: int
    """How large it may be, fields aside."""


class ServiceInterceptor(grpc.aio.ServerInterceptor):
    """Admits, validates, measures and translates errors: the only place where an error becomes a gRPC status."""

    def __init__(
        self,
        authenticator: Authenticator,
        roles: frozenset[str],
        full_names: tuple[str, ...],
        *,
        calls: CallLimits,
        strangers: StrangerLimits,
        validate: bool,
        open_methods: frozenset[str] = frozenset(),
        tails: frozenset[str] = frozenset(),
    ) -> None:
        """`tails` are the methods whose streams end when the server is to stop, since their clients read on."""
        self._authenticator = authenticator
        self._roles = roles
        self._prefixes = tuple(f"/{name}/" for name in full_names)
        self._calls = calls
        self._strangers = strangers
        self._validate = validate
        self._open_methods = open_methods
        self._tails = tails

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[_Handler]], handler_call_details: Any
    ) -> _Handler:
        """Wraps the methods of our services; health and reflection pass as they are."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or not method.startswith(self._prefixes):
            return handler
        if handler.request_streaming and not handler.response_streaming:
            raise TypeError(f"{method}: a stream of requests with one answer has no entrance here")
        streams: bool = handler.response_streaming
        sent = handler_call_details.invocation_metadata or ()
        metadata = dict(sent)
        request_id = about.request_id(str(metadata.get(about.REQUEST_ID, "")))
        about.about_request(request_id)
        is_open = method in self._open_methods and not handler.request_streaming
        try:
            if len(metadata) < len(sent):
                _require_one_token(sent)
            caller = self._authenticator.admit(metadata, self._roles, to_strangers=is_open)
            self._calls.require_room(caller.tenant, streams=streams)
        except FetchboxError as error:
            return _refusal(error, method, streams=streams)
        call = _Call(handler, method, caller, request_id, self._calls, self._strangers, self._validate)
        call.is_tail = method in self._tails
        return call.answering()


def _require_one_token(sent: Iterable[tuple[str, Any]]) -> None:
    """Two credentials are two callers, and which of them counts nobody could tell."""
    if sum(name == "authorization" for name, _ in sent) > 1:
        raise FetchboxError(errors_pb2.REASON_UNAUTHORIZED, "the metadata `authorization` is given twice")


@dataclass(slots=True, eq=False)  # not frozen: that would triple the time to make one
class _Call:
    """One call that its headers admit."""

    handler: _Handler
    method: str
    caller: Caller
    request_id: str
    calls: CallLimits
    strangers: StrangerLimits
    validate: bool
    is_tail: bool = False

    def answering(self) -> _Handler:
        """The handler of the call. A stranger's message is a stream of one, for gRPC reads any other by itself."""
        serialize = self.handler.response_serializer
        is_stranger = self.caller.role == STRANGER
        if self.handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream, None, serialize)
        if self.handler.response_streaming:
            make = grpc.stream_stream_rpc_method_handler if is_stranger else grpc.unary_stream_rpc_method_handler
            return make(self._stream, None, serialize)
        make = grpc.stream_unary_rpc_method_handler if is_stranger else grpc.unary_unary_rpc_method_handler
        return make(self._unary, None, serialize)

    async def _unary(self, sent: bytes | _Messages, context: _Context) -> Message:
        started = time.monotonic()
        self._begin(context)
        try:
            with self.calls.call():
                response: Message = await self.handler.unary_unary(await self._request(sent), context)
        except Exception as error:  # noqa: BLE001 - every error leaves as a status
            await _abort(error, self.method, started, context)
        except asyncio.CancelledError:
            _measure(self.method, _CANCELLED, started)
            raise
        _measure(self.method, "OK", started)
        return response

    async def _stream(self, sent: bytes | _Messages, context: _Context) -> AsyncIterator[Message]:
        started = time.monotonic()
        self._begin(context)
        try:
            with self.calls.stream(self.caller.tenant), self.calls.tail() if self.is_tail else nullcontext():
                async for response in await self._answers(sent, context):
                    yield response
        except Exception as error:  # noqa: BLE001 - every error leaves as a status
            await _abort(error, self.method, started, context, metrics.GRPC_STREAM_SECONDS)
        except (asyncio.CancelledError, GeneratorExit) as left:
            if self.is_tail and self.calls.ending and isinstance(left, asyncio.CancelledError):
                await _abort(unavailable(_STOPS), self.method, started, context, metrics.GRPC_STREAM_SECONDS)
            _measure(self.method, _CANCELLED, started, metrics.GRPC_STREAM_SECONDS)
            raise
        _measure(self.method, "OK", started, metrics.GRPC_STREAM_SECONDS)

    async def _answers(self, sent: bytes | _Messages, context: _Context) -> AsyncIterator[Message]:
        """What the method makes of its message, or of its messages, which it reads as it gets on with them."""
        made: AsyncIterator[Message]
        if self.handler.request_streaming and not isinstance(sent, bytes):
            made = self.handler.stream_stream(self._requests(sent), context)
        else:
            made = self.handler.unary_stream(await self._request(sent), context)
        return made

    async def _requests(self, sent: _Messages) -> AsyncIterator[Message]:
        async for raw in sent:
            yield self._parsed(raw)

    def _begin(self, context: _Context) -> None:
        set_caller(self.caller)
        about.about_request(self.request_id)
        rpc_wait.begin(context.time_remaining())

    async def _request(self, sent: bytes | _Messages) -> Message:
        """The message, parsed and checked."""
        return self._parsed(sent if isinstance(sent, bytes) else await _stranger_message(sent, self.strangers))

    def _parsed(self, raw: bytes) -> Message:
        try:
            request: Message = self.handler.request_deserializer(raw)
        except DecodeError as error:
            raise invalid("the message is no valid protobuf of this RPC's request") from error
        if self.validate:
            require_valid(request)
        return request


async def _stranger_message(messages: _Messages, limits: StrangerLimits) -> bytes:
    try:
        async with asyncio.timeout(limits.seconds):
            raw = await anext(aiter(messages))
    except StopAsyncIteration:
        raise invalid("the call has no request message") from None
    except TimeoutError:
        problem = f"the message did not come within {limits.seconds:g} s (rpc.stranger_timeout)"
        raise refused("slow_message", problem) from None
    if len(raw) > limits.max_bytes + _FIELDS_BYTES:
        problem = f"a request without a token may have at most {limits.max_bytes} bytes (security.max_stranger_bytes)"
        raise FetchboxError(errors_pb2.REASON_PAYLOAD_TOO_LARGE, problem)
    return raw


def _refusal(error: FetchboxError, method: str, *, streams: bool) -> _Handler:
    """Answers a call with an error, whatever it sends, and reads none of it."""
    taken = metrics.GRPC_STREAM_SECONDS if streams else metrics.GRPC_SECONDS

    async def refuse(_messages: _Messages, context: _Context) -> None:
        await _abort(error, method, time.monotonic(), context, taken)

    return grpc.stream_unary_rpc_method_handler(refuse)


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
