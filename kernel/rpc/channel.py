"""A connection from one service of the platform to another."""

from __future__ import annotations

from pathlib import Path

import grpc

from fetchbox.config.v1.config_pb2 import Tls

_MESSAGE_LIMIT = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),
)
"""A service that comes back is found within seconds, and none of ours is behind the proxy of the machine."""


def open_channel(target: str, tls: Tls) -> grpc.aio.Channel:
    """A channel to `host:port`; it connects with its first call. OSError where a file of `tls` cannot be read.

    With TLS, which is the platform's, the same authorities and key pair serve both sides of a call: trusted are
    `client_ca_file` (the certificate itself where that is not set), and shown is the pair.
    """
    if not tls.cert_file:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    certificate = Path(tls.cert_file).read_bytes()
    roots = Path(tls.client_ca_file).read_bytes() if tls.client_ca_file else certificate
    credentials = grpc.ssl_channel_credentials(roots, Path(tls.key_file).read_bytes(), certificate)
    return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
