"""Header fields that no manifest and no task may set: ingest refuses them, and the worker does for direct producers."""

from typing import Final

FORBIDDEN_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""`Host`, `Content-Length`, `Expect` and what belongs to one connection (RFC 9110 section 7.6.1, RFC 2616 13.5.1)."""
