"""Header fields that no manifest and no task may set: ingest refuses them, and the worker does for direct producers."""

import re
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
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_NOT_IN_A_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def may_be_sent(name: str, value: str) -> bool:
    """Whether this is a header field, and none that belongs to the connection."""
    return bool(_NAME.fullmatch(name)) and name.lower() not in FORBIDDEN_HEADERS and not _NOT_IN_A_VALUE.search(value)
