"""The gRPC services behind the gateway: one channel each, raw bytes in and out, and the metadata that may travel."""

import re
from collections.abc import Mapping
from pathlib import Path

import grpc
from multidict import CIMultiDictProxy

from fetchbox.config.v1.config_pb2 import Tls
from fetchbox.gateway.v1.options_pb2 import Rest
from gateway.errors import DeadlineError
from gateway.mismatch import MismatchError

DEADLINE = 90.0
"""The longest unary call in seconds, for calls without a `grpc-timeout`: above every wait that an RPC of ours takes."""

_ALWAYS = ("authorization", "traceparent", "tracestate")
_VALUE = re.compile(r"[ -~]*", re.ASCII)
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_UNITS: Mapping[str, float] = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SHORTEST = 1e-6
_MESSAGE_LIMIT = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.use_local_subchannel_pool", 1),
)
"""A service that comes back is found within seconds; each gateway has connections of its own."""

Metadata = list[tuple[str, str]]


class Upstream:
    """One service at `host:port`. `tls` is the platform's: the same authorities and key pair serve both sides."""

    def __init__(self, target: str, tls: Tls | None = None) -> None:
        self.target = target
        if tls is not None and tls.cert_file:
            self._channel = grpc.aio.secure_channel(target, _credentials(tls), options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._stream: dict[str, grpc.aio.UnaryStreamMultiCallable[bytes, bytes]] = {}

    async def call(self, rpc: str, request: bytes, metadata: Metadata, timeout: float | None) -> bytes:  # noqa: ASYNC109 - gRPC keeps it, and tells the service
        """The answer of a unary RPC; raises `grpc.aio.AioRpcError`. Cancelling the task cancels the call."""
        stub = self._unary.get(rpc)
        if stub is None:
            stub = self._unary[rpc] = self._channel.unary_unary(rpc)
        return await stub(request, metadata=metadata, timeout=timeout)

    def open(
        self, rpc: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> "grpc.aio.UnaryStreamCall[bytes, bytes]":
        """The call of a streaming RPC."""
        stub = self._stream.get(rpc)
        if stub is None:
            stub = self._stream[rpc] = self._channel.unary_stream(rpc)
        return stub(request, metadata=metadata, timeout=timeout)

    async def close(self) -> None:
        """Ends every call."""
        await self._channel.close()


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    """Trusts the authorities of the platform (its own certificate where none are named) and shows its key pair."""
    certificate = Path(tls.cert_file).read_bytes()
    roots = Path(tls.client_ca_file).read_bytes() if tls.client_ca_file else certificate
    return grpc.ssl_channel_credentials(roots, Path(tls.key_file).read_bytes(), certificate)


def metadata(headers: CIMultiDictProxy[str], rest: Rest, request_id: str, traceparent: str = "") -> Metadata:
    """What travels: the headers that the RPC reads, credentials and trace context. Nothing else of the client's.

    `traceparent` is the gateway's own span, in place of the client's. Raises `MismatchError` for a value that gRPC
    cannot carry, and for a header that is given twice.
    """
    found: Metadata = [("x-request-id", request_id)]
    for name in (*_ALWAYS, *rest.request_headers):
        if name not in headers:
            continue
        values = headers.getall(name)
        if len(values) > 1:
            raise MismatchError("is given twice").at(name)
        if not _VALUE.fullmatch(values[0]):
            raise MismatchError("may only hold printable ASCII").at(name)
        found.append((name, traceparent if traceparent and name == "traceparent" else values[0]))
    if traceparent and "traceparent" not in headers:
        found.append(("traceparent", traceparent))
    return found


def deadline(headers: Mapping[str, str], default: float | None) -> float | None:
    """The seconds that a call may take: the client's `grpc-timeout`, at most `default`; None for no end.

    Raises `MismatchError` for a malformed header (passed on, it would harm other calls of the same connection), and
    `DeadlineError` for one that leaves no time.
    """
    value = headers.get("grpc-timeout")
    if value is None:
        return default
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise MismatchError("is no gRPC timeout like `500m`").at("grpc-timeout")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds < _SHORTEST:  # grpc.aio takes 0 for no deadline at all
        raise DeadlineError
    return seconds if default is None else min(seconds, default)
