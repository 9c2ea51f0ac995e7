"""The gRPC services behind the gateway: one channel each, raw bytes in and out, and the metadata that may travel."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from multidict import CIMultiDictProxy

from fetchbox.config.v1.config_pb2 import Tls
from fetchbox.gateway.v1.options_pb2 import Rest
from gateway import scalars
from gateway.errors import DeadlineError
from gateway.mismatch import MismatchError
from gateway.routes import Route

DEADLINE = 90.0
"""The longest unary call in seconds, for calls without a `grpc-timeout`: above every wait that an RPC of ours takes."""

_ALWAYS = ("authorization", "traceparent", "tracestate")
_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"})
"""What belongs to one connection and never travels."""
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

Metadata = list[tuple[str, str | bytes]]


class Upstream:
    """One service at `host:port`. `tls` is the platform's: the same authorities and key pair serve both sides.

    Of several connections each takes its turn, so that several processes at one port have work.
    """

    def __init__(self, target: str, tls: Tls | None = None, connections: int = 1) -> None:
        self.target = target
        self._channels = [_channel(target, tls) for _ in range(connections)]
        self._turns = cycle(range(connections))
        self._stubs: dict[tuple[str, int], Any] = {}

    def call(self, route: Route, requests: Sequence[Message], metadata: Metadata, timeout: float | None) -> Any:
        """The call of an RPC: awaited, or read as a stream, it raises `grpc.aio.AioRpcError`.

        Cancelling the task that awaits it cancels the call.
        """
        key = route.rpc, next(self._turns)
        stub = self._stubs.get(key)
        if stub is None:
            stub = self._stubs[key] = _stub(self._channels[key[1]], route.method)(route.rpc)
        sent = [message.SerializeToString() for message in requests]
        return stub(sent if route.method.client_streaming else sent[0], metadata=metadata, timeout=timeout)

    async def close(self) -> None:
        """Ends every call."""
        await asyncio.gather(*(channel.close() for channel in self._channels))


def _channel(target: str, tls: Tls | None) -> grpc.aio.Channel:
    if tls is not None and tls.cert_file:
        return grpc.aio.secure_channel(target, _credentials(tls), options=_OPTIONS)
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


def _stub(channel: grpc.aio.Channel, method: MethodDescriptor) -> Any:
    if method.client_streaming:
        return channel.stream_stream if method.server_streaming else channel.stream_unary
    return channel.unary_stream if method.server_streaming else channel.unary_unary


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
    hops = _of_this_hop(headers)
    for name in (*_ALWAYS, *rest.request_headers):
        if name not in headers or name in hops:
            continue
        values = headers.getall(name)
        if len(values) > 1:
            raise MismatchError("is given twice").at(name)
        if name.endswith("-bin"):
            found.append((name, _binary(name, values[0])))
            continue
        if not _VALUE.fullmatch(values[0]):
            raise MismatchError("may only hold printable ASCII").at(name)
        found.append((name, traceparent if traceparent and name == "traceparent" else values[0]))
    if traceparent and "traceparent" not in headers:
        found.append(("traceparent", traceparent))
    return found


def _of_this_hop(headers: CIMultiDictProxy[str]) -> frozenset[str]:
    """The headers that `Connection` names, in lower case (RFC 9110 section 7.6.1)."""
    value = headers.get("Connection", "")
    return frozenset(name.strip().lower() for name in value.split(",")) | _HOP if value else _HOP


def _binary(name: str, value: str) -> bytes:
    """What a `-bin` header carries: gRPC encodes it again on its way (gRPC over HTTP/2, "Custom-Metadata")."""
    try:
        return scalars.read_bytes(value.strip())
    except MismatchError as error:
        raise error.at(name) from None


def returned(metadata: Iterable[tuple[str, str | bytes]] | None, rest: Rest) -> dict[str, str]:
    """The response headers out of the initial metadata of an answer: those that the RPC names, as text."""
    return {
        name: value
        for name, value in metadata or ()
        if name in rest.response_headers and isinstance(value, str) and _VALUE.fullmatch(value)
    }


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
