"""The small server that shows the metrics of a process: to everybody on loopback, to operators beyond it."""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.access import is_loopback
from kernel.config.addresses import split
from kernel.telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_LOOPBACK = "127.0.0.1"


class MetricsServer:
    """Shows the registry at `/metrics` from a thread of its own; a `Duty` of a service.

    With `tokens`, callers must send one of them as `Authorization: Bearer …`.
    """

    name = "metrics"

    def __init__(self, port: int, host: str = _LOOPBACK, tokens: Collection[str] = (), key: str = "") -> None:
        """`key` is that of the configuration that names this address, for people."""
        self.port = port
        self._host = host
        self._tokens = tuple(tokens)
        self._key = key or "observability.metrics_port"
        self._running: tuple[WSGIServer, threading.Thread] | None = None

    async def start(self) -> None:
        """Listens; port 0 takes a free one, which `port` then tells. OSError where nothing can listen there."""
        app: Any = make_wsgi_app(REGISTRY)
        kind = _Server6 if ":" in self._host else ThreadingWSGIServer
        try:
            server = make_server(
                self._host, self.port, _guarded(app, self._tokens) if self._tokens else app, kind, _Silent
            )
        except OSError as error:
            problem = f"cannot show metrics at {self._host}:{self.port} ({self._key}): {error.strerror}"
            raise OSError(error.errno, problem) from error
        thread = threading.Thread(target=server.serve_forever, daemon=True, name=self.name)
        thread.start()
        self._running = server, thread
        self.port = server.server_port

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: metrics are shown until the end."""

    async def stop(self) -> None:
        """Stops listening; safe twice."""
        if self._running is None:
            return
        server, thread = self._running
        self._running = None
        server.shutdown()
        server.server_close()
        thread.join()


def server_of(config: Config) -> MetricsServer | None:
    """The server that a configuration asks for, not yet started; None where metrics are off."""
    observability, security = config.observability, config.security
    if not observability.metrics_listen:
        return MetricsServer(observability.metrics_port) if observability.metrics_port else None
    host, port = split(observability.metrics_listen)
    is_free = security.trusted_network or is_loopback(observability.metrics_listen)
    return MetricsServer(port, host, () if is_free else security.operator_tokens, "observability.metrics_listen")


class _Server6(ThreadingWSGIServer):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    timeout = 30.0
    """Seconds that a caller may be silent within its request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Logs nothing: who reads metrics does so every few seconds."""


def _guarded(app: WSGIApplication, tokens: Iterable[str]) -> WSGIApplication:
    wanted = [f"bearer {token}".encode() for token in tokens]

    def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        scheme, _, token = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        sent = f"{scheme.lower()} {token.strip()}".encode()
        # Each is compared, so that the time tells nothing about any of them.
        if any([hmac.compare_digest(sent, one) for one in wanted]):  # noqa: C419
            return app(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"send the token of an operator: Authorization: Bearer <token>\n"]

    return guarded
