"""The HTTP server as a duty: it listens, and on the way out ends its streams and lets other requests finish."""

import asyncio
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

    def handle_error(self, request: web.BaseRequest, *_: object, **__: object) -> web.StreamResponse:
        """The request could not be read: `Handler` answers every other failure itself."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        return self._refuse(request)


class _Server(web.Server):
    def __init__(self, handler: Handler) -> None:
        super().__init__(self._serve, handler_cancellation=True)
        self._handler = handler
        self.refuse = handler.refuse
        self.keep_alive = handler.limits.keep_alive
        self.running: set[asyncio.Task[object]] = set()

    def __call__(self) -> RequestHandler:
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
