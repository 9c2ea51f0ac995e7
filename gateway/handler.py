"""One HTTP request, from its first byte to the answer: find the route, build the message, call the RPC, print.

Whatever fails on the way becomes one form of answer (`gateway.errors`). Every answer has a request id; every request is
logged and measured under the template of its route, for the path itself may hold anything.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

import grpc
from aiohttp import web
from google.protobuf.message import Message
from multidict import CIMultiDictProxy
from opentelemetry.trace import SpanKind

from fetchbox.errors.v1 import errors_pb2
from gateway import body, errors, upstream, websocket
from gateway.answer import AnswerError
from gateway.endpoint import Endpoint
from gateway.entrance import Entrance
from gateway.errors import DeadlineError, ErrorPrinter, GatewayFailure, RefusedError
from gateway.forwarded import Forwarding
from gateway.limits import Limits
from gateway.mismatch import MismatchError
from gateway.outlet import HttpOutlet, Outlet
from gateway.pages import Page
from gateway.routes import Match, Route, Router
from gateway.streams import Stream
from gateway.websocket import SocketOutlet
from kernel.errors import FetchboxError, invalid, unavailable
from kernel.offload import Offload
from kernel.telemetry import context as about
from kernel.telemetry import metrics, tracing
from kernel.telemetry.logs import get_logger

log = get_logger("gateway")

REQUEST_ID = "X-Request-Id"

_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "PATCH", "POST", "PUT"})
"""Label values of the metric; what else clients make up counts as `other`."""
_CLIENT_LEFT = 499
"""The status, in metric and log alone, of a request whose client did not wait for the answer."""


@dataclass(slots=True)
class _Exchange:
    """One request and what is known of it so far."""

    request: web.BaseRequest
    request_id: str
    path: str
    query: str
    authority: str = ""
    """That of a target in absolute form."""
    cors: Mapping[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    label: str = "unmatched"
    streams: bool = False

    @property
    def accept(self) -> str:
        return self.request.headers.get("Accept", "")

    @property
    def headers(self) -> dict[str, str]:
        own = {REQUEST_ID: self.request_id, "X-Content-Type-Options": "nosniff", "Server": "fetchbox"}
        return {**own, **self.cors}


class Handler:
    """Serves the requests for a set of endpoints."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        printer: ErrorPrinter,
        limits: Limits,
        entrance: Entrance,
        pages: Mapping[str, Page] | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        """`pages` stand by path."""
        self._endpoints = {id(endpoint.route): endpoint for endpoint in endpoints}
        self._router = Router(endpoint.route for endpoint in self._endpoints.values())
        self._printer = printer
        self.limits = limits
        self._pages = pages or {}
        self._forwarding = forwarding or Forwarding()
        self._entrance = entrance
        self._offload = Offload()
        self._requests = 0
        self._streams: set[Stream] = set()
        self.draining = False

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer; never raises but for cancellation."""
        exchange = self._exchange(request)
        try:
            response = await self._respond(exchange)
        except asyncio.CancelledError:
            _account(exchange, _CLIENT_LEFT)
            raise
        except body.SlowBodyError as error:
            self.count("slow_body", str(error))
            response = self.failed(exchange, _slow(error))
            response.force_close()
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            _report(error, exchange)
            response = self.failed(exchange, errors.of_error(error))
        if self.draining:
            response.force_close()
        _account(exchange, response.status)
        return response

    def stop_streams(self) -> None:
        """Ends every stream; their clients may come back elsewhere."""
        for stream in tuple(self._streams):
            stream.stop()

    def refuse(self, request: web.BaseRequest) -> web.Response:
        """The answer to bytes that are no HTTP."""
        failure = errors.of_error(invalid("this is no valid HTTP request, or its header is too large"))
        response = self.failed(self._exchange(request), failure)
        response.force_close()
        return response

    def full(self) -> bytes:
        """The whole answer to a connection too many."""
        problem = f"this process has {self.limits.connections} connections already (gateway.max_connections)"
        self.count("connections", problem)
        failure = errors.of_error(unavailable(f"{problem}: try again"))
        content_type, text = self._printer.print(failure, "")
        head = f"HTTP/1.1 {failure.http_status} Service Unavailable\r\n{errors.ERROR_HEADER}: {failure.word}\r\n"
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(text)}\r\nRetry-After: 1\r\n"
        return f"{head}Connection: close\r\n\r\n".encode() + text

    def count(self, reason: str, problem: str) -> None:
        """Counts and logs what a limit refuses, or ends."""
        metrics.CALLS_REFUSED.labels("gateway", reason).inc()
        log.warn("request_refused", reason=reason, problem=problem)

    async def close(self) -> None:
        """Lets go of the thread beside the event loop."""
        await self._offload.stop()

    def _exchange(self, request: web.BaseRequest) -> _Exchange:
        request_id = about.request_id(request.headers.get(REQUEST_ID, ""))
        about.about_request(request_id)
        cors = self._entrance.origins.answer_headers(request.headers)
        target = request.raw_path
        if not target.startswith("/") and "://" in target:  # absolute form (RFC 9112 section 3.2.2)
            parts = urlsplit(target)
            return _Exchange(request, request_id, parts.path or "/", parts.query, parts.netloc, cors)
        path, _, query = target.partition("#")[0].partition("?")
        return _Exchange(request, request_id, path, query, cors=cors)

    def failed(self, exchange: _Exchange, failure: GatewayFailure) -> web.Response:
        """The answer of a failure."""
        content_type, text = self._printer.print(failure, exchange.accept)
        headers = {**exchange.headers, **failure.headers, errors.ERROR_HEADER: failure.word}
        headers["Content-Type"] = content_type
        response = web.Response(status=failure.http_status, body=text, headers=headers)
        if exchange.request.can_read_body and not exchange.request.content.is_eof():
            response.force_close()  # the rest of the body is not worth reading
        return response

    async def _respond(self, exchange: _Exchange) -> web.StreamResponse:
        request = exchange.request
        self._entrance.check(request, exchange.authority)
        match = self._match(request.method, exchange.path)
        if match is None:
            return self._unmatched(exchange)
        exchange.label = match.route.pattern
        endpoint = self._endpoints[id(match.route)]
        exchange.streams = endpoint.streams
        parent = request.headers.get("traceparent", "")
        with tracing.span(match.route.label, parent, kind=SpanKind.SERVER):
            if endpoint.streams:
                return await self._stream(exchange, endpoint, match)
            with self._counted():
                return await self._unary(exchange, endpoint, match)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts a request in progress; raises `RATE_LIMITED` for one too many."""
        most = self.limits.requests
        if self._requests >= most:
            problem = f"this process serves {most} requests already (gateway.max_requests)"
            self.count("requests", problem)
            raise FetchboxError(errors_pb2.REASON_RATE_LIMITED, f"{problem}: try again", retry_after=1.0)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def _match(self, http_method: str, path: str) -> Match | None:
        """HEAD is served as GET without a body where it has no route of its own, streams aside."""
        found = self._router.match(http_method, path)
        if found is None and http_method == "HEAD":
            found = self._router.match("GET", path)
            if found is not None and found.route.method.server_streaming:
                return None
        return found

    def _unmatched(self, exchange: _Exchange) -> web.Response:
        method = exchange.request.method
        if method == "OPTIONS" and exchange.path == "*":
            return web.Response(status=204, headers=exchange.headers)
        page = self._pages.get(exchange.path)
        if page is not None and method in ("GET", "HEAD"):
            return _show(exchange, page)
        allowed = self._router.allowed(exchange.path)
        if not allowed:
            return self.failed(exchange, errors.not_found(exchange.path))
        if method == "OPTIONS":
            methods = [*allowed, "OPTIONS"]
            asked = self._entrance.origins.preflight_headers(exchange.request.headers, methods)
            return web.Response(status=204, headers={**exchange.headers, "Allow": ", ".join(methods), **asked})
        return self.failed(exchange, errors.not_allowed(method, allowed))

    async def _unary(self, exchange: _Exchange, endpoint: Endpoint, match: Match) -> web.Response:
        request, route = exchange.request, endpoint.route
        limit = self._body_limit(request.headers, route)
        sent = await body.read(request, route, endpoint.binding, self.limits, limit)
        messages, _ = await self._build(exchange, endpoint, match, sent)
        metadata = self._metadata(exchange, request.headers, route)
        timeout = upstream.deadline(request.headers, upstream.DEADLINE)
        call = endpoint.upstream.call(route, messages, metadata, timeout)
        try:
            raw = await call
        except grpc.aio.AioRpcError as error:
            raise errors.late(error) if "grpc-timeout" not in request.headers else error from error
        answer = endpoint.printer.print(endpoint.printer.parse(raw))
        returned = upstream.returned(await call.initial_metadata(), route.rest) if route.rest.response_headers else {}
        headers = {**returned, **exchange.headers, "Content-Type": answer.content_type, "Cache-Control": "no-store"}
        return web.Response(status=route.rest.success_status or 200, body=answer.body, headers=headers)

    def _metadata(self, exchange: _Exchange, headers: CIMultiDictProxy[str], route: Route) -> upstream.Metadata:
        own = upstream.metadata(headers, route.rest, exchange.request_id, tracing.traceparent())
        return own + self._forwarding.metadata(exchange.request)

    def _body_limit(self, headers: Mapping[str, str], route: Route) -> int:
        """The largest body that a caller may send; raises `UNAUTHORIZED` for a caller who is not known."""
        return self.limits.stranger_body if self._entrance.is_stranger(headers, route.rest) else self.limits.body

    async def _build(
        self, exchange: _Exchange, endpoint: Endpoint, match: Match, sent: body.Body, cursor: str = ""
    ) -> tuple[list[Message], bool]:
        """The messages of the RPC, and whether it resumes a stream."""
        content_type = body.content_type(exchange.request)
        is_heavy = bool(sent.coding) or (len(sent.raw) > self.limits.inline and not endpoint.binding.takes_bytes)
        return await self._offload.run(
            is_heavy, lambda: endpoint.binding.build(match, exchange.query, sent.text(), content_type, cursor)
        )

    async def _stream(self, exchange: _Exchange, endpoint: Endpoint, match: Match) -> web.StreamResponse:
        request, route, headers = exchange.request, endpoint.route, exchange.request.headers
        outlet: Outlet
        if route.rest.websocket and websocket.is_wanted(request):
            websocket.check(request)
            headers = websocket.with_credentials(headers)
            outlet = SocketOutlet(request, endpoint.printer, self.limits)
        else:
            outlet = HttpOutlet(request, endpoint.framing(exchange.accept), self._printer)
        limit = self._body_limit(headers, route)
        sent = await body.read(request, route, endpoint.binding, self.limits, limit)
        messages, resumes = await self._build(exchange, endpoint, match, sent, headers.get("Last-Event-ID", ""))
        metadata = self._metadata(exchange, headers, route)
        timeout = upstream.deadline(headers, None)
        call = endpoint.upstream.call(route, messages, metadata, timeout)
        stream = Stream(call, endpoint.printer, outlet, self.limits, route.rest)
        self._streams.add(stream)
        metrics.GATEWAY_STREAMS.inc()
        try:
            return await stream.serve(exchange.headers, resumes=resumes)
        finally:
            metrics.GATEWAY_STREAMS.dec()
            self._streams.discard(stream)


def _show(exchange: _Exchange, page: Page) -> web.Response:
    exchange.label = page.label or exchange.path
    status, headers, content = page.answer(exchange.request.headers)
    headers |= exchange.headers
    headers["Vary"] = ", ".join(filter(None, (exchange.cors.get("Vary"), "Accept-Encoding")))
    return web.Response(status=status, body=content, headers=headers)


def _slow(error: Exception) -> GatewayFailure:
    failure = errors.of_error(invalid(str(error)))
    return GatewayFailure(failure.status, 408, failure.word)


def _report(error: Exception, exchange: _Exchange) -> None:
    """What nobody expected is told with its stack; it never leaves the house."""
    if isinstance(error, grpc.aio.AioRpcError | FetchboxError | MismatchError | DeadlineError | RefusedError):
        return
    if isinstance(error, AnswerError):
        log.error("unprintable_answer", error=str(error), path=exchange.label)
    else:
        log.exception("request_failed", error, path=exchange.label)  # noqa: LOG004, PLE1205 - our own logger, which takes the error itself


def _account(exchange: _Exchange, status: int) -> None:
    seconds = time.monotonic() - exchange.started
    method = exchange.request.method
    _observer(exchange.label, method if method in _METHODS else metrics.OTHER, status, exchange.streams)(seconds)
    log.info(
        "request",
        method=method if method in _METHODS else metrics.OTHER,
        path=exchange.label,
        status=status,
        duration_ms=round(seconds * 1000, 3),
    )


@cache
def _observer(route: str, method: str, status: int, streams: bool) -> Callable[[float], None]:
    taken = metrics.GATEWAY_STREAM_SECONDS if streams else metrics.GATEWAY_SECONDS
    return taken.labels(route, method, str(status)).observe
