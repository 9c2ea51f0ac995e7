"""Which web pages may call: those of the gateway's own site, and those of `gateway.allowed_origins`.

Browsers tell where a request comes from; other clients send no such header. A page of another site may be permitted:
then its browser has to be told so, on the preflight and on each answer (Fetch standard, section "CORS protocol").
Credentials of a browser's own (cookies) mean nothing here, so they are never permitted.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

ORIGIN = "Origin"
_ASKED_METHOD = "Access-Control-Request-Method"
_ASKED_HEADERS = "Access-Control-Request-Headers"
_PRIVATE_NETWORK = "Access-Control-Request-Private-Network"
_EXPOSED = "X-Request-Id, X-Fetchbox-Error, Retry-After, WWW-Authenticate, Allow"
_SENT = ("accept", "authorization", "content-encoding", "content-type", "last-event-id", "traceparent", "x-request-id")
_MAX_AGE = "600"
_VARY = {"Vary": ORIGIN}


class Origins:
    """The pages that may call one gateway."""

    def __init__(self, allowed: Iterable[str] = (), headers: Iterable[str] = ()) -> None:
        """`headers` are those that RPCs read, which a page may send beside the common ones."""
        self._allowed = frozenset(origin.lower() for origin in allowed)
        self._headers = ", ".join(sorted({*_SENT, *headers}))

    def is_foreign(self, headers: Mapping[str, str], host: str) -> bool:
        """Whether a request comes from a page that may not call."""
        origin, site = headers.get(ORIGIN, ""), headers.get("Sec-Fetch-Site", "")
        if origin.lower() in self._allowed:
            return False
        if site:
            return site not in ("same-origin", "none")
        return bool(origin) and not is_own(origin, host)

    def may_connect(self, origin: str, host: str) -> bool:
        """Whether a page of an origin may open a WebSocket."""
        return is_own(origin, host) or origin.lower() in self._allowed

    def answer_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What an answer tells the browser of a page."""
        if not self._allowed:
            return {}
        origin = headers.get(ORIGIN, "")
        if origin.lower() not in self._allowed:
            return dict(_VARY)
        return {**_VARY, "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}

    def preflight_headers(self, headers: Mapping[str, str], methods: Iterable[str]) -> dict[str, str]:
        """What the answer to a preflight says beside that; nothing for any other `OPTIONS`, and for other pages."""
        if headers.get(ORIGIN, "").lower() not in self._allowed or _ASKED_METHOD not in headers:
            return {}
        found = {
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": self._headers,
            "Access-Control-Max-Age": _MAX_AGE,
            "Vary": f"{ORIGIN}, {_ASKED_METHOD}, {_ASKED_HEADERS}",
        }
        if headers.get(_PRIVATE_NETWORK, "").lower() == "true":
            found["Access-Control-Allow-Private-Network"] = "true"
        return found


def is_own(origin: str, host: str) -> bool:
    """Whether an origin is the site that a request is for."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
