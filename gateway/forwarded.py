"""Who asked, at which address and how: `X-Forwarded-For`, `-Proto` and `-Host` for the services.

What a client says of itself is believed only where the peer is a proxy that is trusted; then the peer is appended.
Anybody else's headers are left out, and the chain begins with the peer.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network

from aiohttp import web

_VALUE = re.compile(r"[ -~]{1,2048}", re.ASCII)
_FOR, _PROTO, _HOST = "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"


class Forwarding:
    """The rule of one gateway; `trusted` are the networks of its proxies."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        """Raises `ValueError` for what is no network."""
        networks = [ip_network(network) for network in trusted]

        @lru_cache(1024)
        def is_trusted(peer: str) -> bool:
            try:
                address = ip_address(peer.partition("%")[0])
            except ValueError:
                return False
            return any(address in network for network in networks)

        self._is_trusted = is_trusted

    def metadata(self, request: web.BaseRequest) -> list[tuple[str, str | bytes]]:
        """What the services are given."""
        peer = request.remote or "unknown"
        scheme = "https" if request.transport is not None and request.transport.get_extra_info("sslcontext") else "http"
        said = self._said(request) if self._is_trusted(peer) else {}
        chain = f"{said[_FOR]}, {peer}" if _FOR in said else peer
        found: list[tuple[str, str | bytes]] = [(_FOR, chain), (_PROTO, said.get(_PROTO, scheme))]
        host = said.get(_HOST) or request.headers.get("Host", "")
        return [*found, (_HOST, host)] if host else found

    @staticmethod
    def _said(request: web.BaseRequest) -> dict[str, str]:
        """The headers of a proxy that gRPC can carry; several of one name are one list (RFC 9110 section 5.3)."""
        given = {name: ", ".join(request.headers.getall(name, [])) for name in (_FOR, _PROTO, _HOST)}
        return {name: value for name, value in given.items() if _VALUE.fullmatch(value)}
