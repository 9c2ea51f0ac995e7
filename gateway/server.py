"""The HTTP server as a duty: it listens, and on the way out ends its streams and lets other requests finish."""

import asyncio
import socket
import ssl
from collections.abc import Iterable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from fetchbox.config.v1.config_pb2 import Tls
from gateway.handler import Handler
from gateway.upstream import Upstream

_HEADER_BYTES = 16 << 10
_HEADERS = 100
_BACKLOG = 1024


class _Connection(RequestHandler):
    """A connection whose protocol errors are answered like all others."""

    def __init__(self, server: "_Server") -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=server.keep_alive,
            access_log=None,  # type: ignore[arg-type]  # the package's own way to switch it off
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_HEADERS,
            lingering_time=2.0,
            auto_decompress=False,
        )
        self._refuse = server.refuse
        self._own = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Counts the connection, and lets the kernel end it once its peer takes nothing for `Limits.stall`."""
        super().connection_made(transport)
        self._own.open += 1
        sock = transport.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._own.stall * 1000))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Gives its place back."""
        self._own.open -= 1
        super().connection_lost(exc)

    def handle_error(self, request: web.BaseRequest, *_: object, **__: object) -> web.StreamResponse:
        """The request could not be read: `Handler` answers every other failure itself."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        return self._refuse(request)


class _Full(asyncio.Protocol):
    """A connection too many: it is told so, and closed."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers before anything is read."""
        if isinstance(transport, asyncio.Transport):
            transport.write(self._answer)
            transport.close()


class _Server(web.Server):
    def __init__(self, handler: Handler) -> None:
        super().__init__(self._serve, handler_cancellation=True)
        self._handler = handler
        self.refuse = handler.refuse
        self.keep_alive = handler.limits.keep_alive
        self.stall = handler.limits.stall
        self.open = 0
        self.running: set[asyncio.Task[object]] = set()

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]  # a connection too many has no requests
        if self.open >= self._handler.limits.connections:
            return _Full(self._handler.full())
        return _Connection(self)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        if task is not None:
            self.running.add(task)
            task.add_done_callback(self.running.discard)
        return await self._handler(request)


class HttpServer:
    """Serves a handler at `listen`; `port` is the one that was bound. It owns the channels of the endpoints."""

    name = "gateway-http"

    def __init__(self, listen: str, handler: Handler, upstreams: Iterable[Upstream], tls: Tls | None = None) -> None:
        self.port = 0
        self._listen = listen
        self._handler = handler
        self._upstreams = tuple(upstreams)
        self._tls = tls
        self._http: _Server | None = None
        self._sockets: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens; raises `OSError` naming the address when it is taken."""
        host, port = _address(self._listen)
        self._http = _Server(self._handler)
        try:
            self._sockets = await asyncio.get_running_loop().create_server(
                self._http, host, port, ssl=_ssl(self._tls), backlog=_BACKLOG, reuse_port=True
            )
        except OSError as error:
            raise OSError(f"cannot listen at {self._listen}: {error}") from error
        self.port = self._sockets.sockets[0].getsockname()[1]

    async def drain(self, grace: float) -> None:
        """Takes no new connections, ends the streams, and waits for other requests."""
        if self._sockets is None or self._http is None:
            return
        self._sockets.close()
        self._handler.draining = True
        self._handler.stop_streams()
        running = {task for task in self._http.running if not task.done()}
        self._http.pre_shutdown()
        if running:
            await asyncio.wait(running, timeout=grace)

    async def stop(self) -> None:
        """Ends every request and connection."""
        sockets, self._sockets = self._sockets, None
        http, self._http = self._http, None
        if sockets is not None:
            sockets.close()
        if http is not None:
            self._handler.stop_streams()
            await http.shutdown(0.1)
        await self._handler.close()
        for upstream in self._upstreams:
            await upstream.close()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def _ssl(tls: Tls | None) -> ssl.SSLContext | None:
    """TLS where a certificate is configured; clients need one of theirs where authorities for them are."""
    if tls is None or not tls.cert_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.client_ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert_file, tls.key_file)
    context.verify_mode = ssl.CERT_REQUIRED if tls.client_ca_file else ssl.CERT_NONE
    return context
