"""A gRPC server as a duty: health, reflection, credentials, validation, and errors as `google.rpc.Status`."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fetchbox.config.v1.config_pb2 import Config, Security
from fetchbox.gateway.v1 import options_pb2
from kernel.auth import ANYONE, OPERATOR, Authenticator
from kernel.durations import seconds
from kernel.rpc.calls import CallLimits
from kernel.rpc.interceptor import ServiceInterceptor, StrangerLimits
from kernel.telemetry import tracing

_LEAST_MESSAGE = 8 << 20
_OPTIONS = (
    ("grpc.so_reuseport", 1),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
"""Processes may share a port. A peer that is gone without a word is found within 80 s."""


class GrpcServer:
    """Serves what `add` registers at `listen`; `port` is the one that was bound.

    `roles` may call (see `kernel.auth`); `validate` checks every request against its proto's rules before the method
    sees it. Health and reflection need no credentials, nor do the methods whose option `rest` says `to_strangers`,
    which ask for secrets of their own.
    """

    def __init__(
        self,
        name: str,
        listen: str,
        config: Config,
        add: Callable[[grpc.aio.Server], object],
        full_names: Sequence[str],
        *,
        roles: Iterable[str] = (OPERATOR,),
        validate: bool = True,
    ) -> None:
        self.name = name
        self.port = 0
        self._listen = listen
        self._security = config.security
        self.register = add
        self._full_names = tuple(full_names)
        self._calls = CallLimits(config.rpc)
        own = ServiceInterceptor(
            Authenticator(config.security),
            frozenset({*roles, ANYONE}),
            self._full_names,
            calls=self._calls,
            strangers=StrangerLimits(seconds(config.rpc.stranger_timeout), config.security.max_stranger_bytes),
            validate=validate,
            open_methods=_open_methods(self._full_names),
            tails=_tails(self._full_names),
        )
        self._options = _options(config)
        self._interceptors = (*tracing.server_interceptors(), own)
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()

    async def start(self) -> None:
        """Binds and serves; raises `OSError` naming the address when it is taken."""
        server = grpc.aio.server(interceptors=self._interceptors, options=self._options)
        self.register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*self._full_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        self.port = _bind(server, self._listen, self._security)
        await server.start()
        self._server = server
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def drain(self, grace: float) -> None:
        """Says NOT_SERVING, refuses new calls, ends tails, which would go on for ever, and waits for other calls."""
        if self._server is not None:
            await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
            self._calls.end_tails()
            await self._server.stop(grace)

    async def stop(self) -> None:
        """Ends every call."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def _set_health(self, status: int) -> None:
        await asyncio.gather(*(self._health.set(name, status) for name in ("", *self._full_names)))


def _options(config: Config) -> list[tuple[str, int]]:
    """No message may be larger than the largest request that a service takes; a larger one is never read."""
    largest = max(_LEAST_MESSAGE, 2 * config.ingest.max_document_bytes, 2 * config.gateway.max_request_bytes)
    return [
        *_OPTIONS,
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_allowed_incoming_connections", config.rpc.max_connections),
        ("grpc.max_concurrent_streams", config.rpc.max_calls + config.rpc.max_streams),
    ]


def _open_methods(full_names: Iterable[str]) -> frozenset[str]:
    """Those of some services that are open to strangers, as `/package.Service/Method`."""
    return _methods(full_names, lambda rest, _: rest.to_strangers)


def _tails(full_names: Iterable[str]) -> frozenset[str]:
    """Those that follow something live."""
    return _methods(full_names, lambda rest, streams: streams and bool(rest.last_event_id_field or rest.stream_type))


def _methods(full_names: Iterable[str], wanted: Callable[[options_pb2.Rest, bool], bool]) -> frozenset[str]:
    services = [descriptor_pool.Default().FindServiceByName(name) for name in full_names]
    return frozenset(
        f"/{service.full_name}/{method.name}"
        for service in services
        for method in service.methods
        if wanted(method.GetOptions().Extensions[options_pb2.rest], method.server_streaming)
    )


def _bind(server: grpc.aio.Server, listen: str, security: Security) -> int:
    try:
        credentials = _credentials(security)
        port = server.add_secure_port(listen, credentials) if credentials else server.add_insecure_port(listen)
    except RuntimeError as error:
        raise OSError(f"cannot listen at {listen}: is another process there? ({error})") from error
    return int(port)


def _credentials(security: Security) -> grpc.ServerCredentials | None:
    tls = security.tls
    if not tls.cert_file:
        return None
    pair = (Path(tls.key_file).read_bytes(), Path(tls.cert_file).read_bytes())
    authorities = Path(tls.client_ca_file).read_bytes() if tls.client_ca_file else None
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)
