"""Connections to the services: address, TLS, token and deadline in one place."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from cli.problems import USAGE, CommandError, translated
from cli.settings import Settings
from fetchbox.flow.v1.flow_service_pb2_grpc import FlowServiceStub
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub

_OPTIONS = (
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_metadata_size", 64 << 10),
)
_FLOW_HINTS = {
    "NOT_FOUND": "`fetchbox flows list` shows the runs there are, `fetchbox flows get RUN` the steps of one.",
    "IDEMPOTENCY_CONFLICT": "This id or key was used with another flow or input: use another --id or --key.",
    "GONE": "`fetchbox flows get RUN` shows what became of it.",
    "FAILED_PRECONDITION": "`fetchbox flows get RUN` shows which gates are placed.",
    "PAYLOAD_TOO_LARGE": "Put it into the object store, and give its key.",
}
_LEFT_OPEN: list[grpc.Channel] = []
"""Channels that Ctrl-C met: closing one waits forever if the start of a call was interrupted."""


@contextmanager
def ingest(options: Settings) -> Iterator[IngestServiceStub]:
    """The ingest service; errors of its calls become a CommandError."""
    with _channel(options, "ingest") as channel:
        yield IngestServiceStub(channel)


@contextmanager
def tasks(options: Settings) -> Iterator[TaskServiceStub]:
    """The task service, which the ingest service serves; errors of its calls become a CommandError."""
    with _channel(options, "ingest", options.address("task")) as channel:
        yield TaskServiceStub(channel)


@contextmanager
def flows(options: Settings, hints: Mapping[str, str] | None = None) -> Iterator[FlowServiceStub]:
    """The service of flows, which the ingest service serves; errors of its calls become a CommandError.

    `hints`, by reason, go before those for every command.
    """
    with _channel(options, "ingest", options.address("flow"), {**_FLOW_HINTS, **(hints or {})}) as channel:
        yield FlowServiceStub(channel)


@contextmanager
def worker(options: Settings) -> Iterator[WorkerServiceStub]:
    """The worker service; errors of its calls become a CommandError."""
    with _channel(options, "worker") as channel:
        yield WorkerServiceStub(channel)


@contextmanager
def operator(options: Settings) -> Iterator[OperatorServiceStub]:
    """The operator service; errors of its calls become a CommandError."""
    with _channel(options, "operator") as channel:
        yield OperatorServiceStub(channel)


@contextmanager
def _channel(
    options: Settings, service: str, address: str = "", hints: Mapping[str, str] | None = None
) -> Iterator[grpc.Channel]:
    address = address or options.address(service)
    channel = _connect(options, address)
    try:
        with translated(service, address, hints):
            yield grpc.intercept_channel(channel, _CallOptions(options))
    except KeyboardInterrupt:
        _LEFT_OPEN.append(channel)
        raise
    finally:
        if channel not in _LEFT_OPEN:
            channel.close()


def _connect(options: Settings, address: str) -> grpc.Channel:
    local = address.startswith(("127.", "localhost:", "[::1]:"))
    arguments = [*_OPTIONS, ("grpc.enable_http_proxy", 0)] if local else [*_OPTIONS]
    if options.ca_file is None:
        return grpc.insecure_channel(address, arguments)
    credentials = grpc.ssl_channel_credentials(
        _read(options.ca_file), _read(options.key_file), _read(options.cert_file)
    )
    return grpc.secure_channel(address, credentials, arguments)


def _read(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path is not None else None
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", USAGE) from error


class _Details(NamedTuple):
    """What gRPC wants back from an interceptor."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class _CallOptions(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds the token to every call, and the deadline to those that are no stream."""

    def __init__(self, options: Settings) -> None:
        self._timeout = options.timeout
        if options.token and not (options.token.isascii() and options.token.isprintable()):
            raise CommandError("the token (--token, FETCHBOX_TOKEN) has signs that no header may hold", USAGE)
        self._token = (("authorization", f"Bearer {options.token}"),) if options.token else ()

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """A call with one answer."""
        return continuation(self._with(details, details.timeout or self._timeout), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """A call with a stream of answers, which may last."""
        return continuation(self._with(details, details.timeout), request)

    def _with(self, details: Any, timeout: float | None) -> _Details:
        metadata = (*(details.metadata or ()), *self._token)
        return _Details(
            details.method, timeout, metadata, details.credentials, details.wait_for_ready, details.compression
        )
