"""Where a client connects to, as whom, and how: what the sync and the async client have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc

from fetchbox_client.retry import RetryPolicy

_ARGUMENTS = (
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_metadata_size", 64 << 10),
    # A server that is restarted is found soon, and a dead one is noticed by a stream that says nothing.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS: whom to trust, and who the client is where servers ask. Without `ca` the roots of gRPC are trusted."""

    ca: bytes | Path | None = None
    certificate: bytes | Path | None = None
    key: bytes | Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The same as gRPC takes it; reads the files."""
        return grpc.ssl_channel_credentials(*map(_content, (self.ca, self.key, self.certificate)))


def _content(given: bytes | Path | None) -> bytes | None:
    return given.read_bytes() if isinstance(given, Path) else given


@dataclass(frozen=True, slots=True)
class Options:
    """What a client was made with."""

    target: str
    """`host:port` of ingest, or of an Envoy before all services."""
    operator: str
    """`host:port` of the operator service."""
    token: str = field(default="", repr=False)
    tenant: str = ""
    tls: Tls | None = None
    timeout: float = 30.0
    """The deadline of a call with its repetitions, in seconds."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        said = (("authorization", f"Bearer {self.token}" if self.token else ""), ("x-fetchbox-tenant", self.tenant))
        return tuple((name, value) for name, value in said if value)

    def arguments(self, target: str) -> list[tuple[str, int]]:
        """The arguments of a channel; what is on this machine is reached without a proxy."""
        local = target.startswith(("127.", "localhost:", "[::1]:", "unix:"))
        return [*_ARGUMENTS, *([("grpc.enable_http_proxy", 0)] if local else [])]
