"""Who is served, by the headers of a request alone: before its body is read, inflated or parsed.

In this order: the request is for this gateway, no web page that may not call has caused it, and its credentials are
known where any are configured. Services ask for the credentials again, and know what each of them opens.
"""

import re
from collections.abc import Iterable, Mapping

from aiohttp import web

from fetchbox.config.v1.config_pb2 import Security
from fetchbox.errors.v1 import errors_pb2
from fetchbox.gateway.v1.options_pb2 import Rest
from gateway import errors, websocket
from gateway.errors import GatewayFailure, RefusedError
from gateway.hosts import Hosts
from gateway.origins import ORIGIN, Origins
from kernel.auth import ANYONE, OPERATOR, STRANGER, TENANT, Authenticator
from kernel.errors import FetchboxError, invalid

_HOST = re.compile(r"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ROLES = frozenset({ANYONE, OPERATOR, TENANT})


class Entrance:
    """The entrance of one gateway."""

    def __init__(
        self,
        hosts: Hosts,
        security: Security | None = None,
        allowed_origins: Iterable[str] = (),
        request_headers: Iterable[str] = (),
    ) -> None:
        self._hosts = hosts
        self._authenticator = Authenticator(security or Security())
        self.origins = Origins(allowed_origins, request_headers)

    def check(self, request: web.BaseRequest, authority: str = "") -> str:
        """The host that a request is for; raises what a careful server must not guess about, or must not serve.

        `authority` is that of a target in absolute form, which counts in place of the header (RFC 9112 section 3.2.2).
        """
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 and (hosts or request.version >= (1, 1)):
            raise invalid("a request has one Host header (RFC 9112 section 3.2)")
        if hosts and not _HOST.fullmatch(hosts[0]):
            raise invalid("the Host header names no host, or is malformed (RFC 9112 section 3.2)")
        host = authority or (hosts[0] if hosts else "")
        if host and not (self._hosts.allow(host) and all(map(self._hosts.allow, hosts))):
            raise RefusedError(_misdirected(host))
        self._require_own_page(request, host)
        return host

    def _require_own_page(self, request: web.BaseRequest, host: str) -> None:
        """Refuses a page that may not call, whatever the path names: so it learns of nothing that is or is not."""
        if request.method not in _SAFE_METHODS and self.origins.is_foreign(request.headers, host):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN,
                "this request comes from a web page of another site: see gateway.allowed_origins",
            )
        origins = request.headers.getall(ORIGIN, [])
        if websocket.is_wanted(request) and not all(self.origins.may_connect(origin, host) for origin in origins):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN, "this page's origin is not permitted: see gateway.allowed_origins"
            )

    def is_stranger(self, headers: Mapping[str, str], rest: Rest) -> bool:
        """Whether a caller is one without a token whom the RPC admits; raises `UNAUTHORIZED` for all others unknown."""
        metadata = {"authorization": headers["Authorization"]} if "Authorization" in headers else {}
        caller = self._authenticator.admit(metadata, _ROLES, to_strangers=rest.to_strangers)
        return caller.role == STRANGER


def _misdirected(host: str) -> GatewayFailure:
    message = f"this gateway is not {host[:100]}: its names are in gateway.allowed_hosts"
    failure = errors.of_error(FetchboxError(errors_pb2.REASON_FORBIDDEN, message))
    return GatewayFailure(failure.status, 421, failure.word)
