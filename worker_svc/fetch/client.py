"""Asking for one URL: two connection pools, one for direct fetches behind the guard and one for proxies.

Every socket of the direct pool is opened by the guard, which sees the address really dialled. A proxy dials for us. It
is given an address that the guard has checked, while TLS and the `Host` header keep the name; or, where the
configuration says `proxy_resolves`, the name itself, which only the proxy resolves (ADR 0028).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import DefaultResolver
from multidict import CIMultiDict
from yarl import URL

from fetchbox.config.v1.config_pb2 import Fetcher as FetcherConfig
from fetchbox.errors.v1 import errors_pb2
from kernel.durations import seconds
from worker_svc.fetch.failure import failure
from worker_svc.fetch.faults import TRANSPORT_ERRORS, before_head, blocked, brief, speaks_no_tls
from worker_svc.fetch.guard import AddressPolicy, BlockedAddressError
from worker_svc.fetch.proxies import Proxy, ProxyFault
from worker_svc.fetch.url import Url
from worker_svc.fetch.wire import WireConnector, WireResponse

LONGEST_FIELD: Final = 65_536
"""Bytes of one header field."""
MOST_FIELDS: Final = 2_048
"""Header fields of one answer: 2,000 and what every answer has."""
_READ_BUFFER: Final = 64 * 1024
"""Bytes after which a body waits in the kernel; aiohttp takes twice as many."""
_IDLE_SECONDS: Final = 30.0
_NAMES_SECONDS: Final = 30
_MOST_NAMES: Final = 10_000
_STALE_REPLAYS: Final = 8
"""How many kept connections in a row may turn out to be closed: aiohttp itself replays once."""


@dataclass(frozen=True, slots=True)
class _Pools:
    resolver: AbstractResolver
    direct: aiohttp.ClientSession
    proxied: aiohttp.ClientSession


class FetchClient:
    """GET, without redirects, cookies, decompression or the environment's proxies."""

    def __init__(
        self,
        config: FetcherConfig,
        policy: AddressPolicy,
        *,
        resolver: AbstractResolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy
        self._proxy_resolves = config.proxy_resolves
        self._given_resolver = resolver
        self._ssl_context = ssl_context or ssl.create_default_context()
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=seconds(config.connect_timeout), sock_read=seconds(config.read_timeout)
        )
        # A head that comes byte by byte never trips the read timeout: the whole of it has both times together.
        self._head_seconds = seconds(config.connect_timeout) + seconds(config.read_timeout)
        self._pools: _Pools | None = None

    async def start(self) -> None:
        """Makes the pools; needs the running loop, connects to nothing."""
        resolver = self._given_resolver or DefaultResolver()
        direct = self._session(resolver, socket_factory=self._policy.socket_factory)
        self._pools = _Pools(resolver, direct, self._session(resolver))

    async def close(self) -> None:
        """Closes every connection; safe twice."""
        pools, self._pools = self._pools, None
        if pools is None:
            return
        await pools.direct.close()
        await pools.proxied.close()
        if pools.resolver is not self._given_resolver:
            await pools.resolver.close()

    @property
    def _open(self) -> _Pools:
        if self._pools is None:
            raise RuntimeError("the fetcher is not started")
        return self._pools

    def _session(self, resolver: AbstractResolver, **options: Any) -> aiohttp.ClientSession:
        connector = WireConnector(
            limit=0,
            resolver=resolver,
            ssl=self._ssl_context,
            keepalive_timeout=_IDLE_SECONDS,
            ttl_dns_cache=_NAMES_SECONDS,
            dns_cache_max_size=_MOST_NAMES,
            **options,
        )
        return aiohttp.ClientSession(
            connector=connector,
            response_class=WireResponse,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=self._timeout,
            read_bufsize=_READ_BUFFER,
            max_line_size=LONGEST_FIELD,
            max_field_size=LONGEST_FIELD,
            max_headers=MOST_FIELDS,
        )

    async def get(self, url: Url, headers: CIMultiDict[str], proxy: Proxy | None) -> WireResponse:
        """The head of the answer, whatever its status; the caller closes it. FetchFailure, or ProxyFault."""
        if proxy is None:
            return await self._get_direct(url, headers)
        return await self._get_by_proxy(url, await self._proxy_target(url), headers, proxy)

    async def _get_direct(self, url: Url, headers: CIMultiDict[str]) -> WireResponse:
        try:
            return await self._head(self._open.direct, url, headers)
        except TRANSPORT_ERRORS as error:
            raise before_head(error, url) from error

    async def _get_by_proxy(self, url: Url, target: Url, headers: CIMultiDict[str], proxy: Proxy) -> WireResponse:
        options: dict[str, Any] = {"proxy": proxy.url}
        headers = headers.copy()
        headers["Host"] = url.netloc
        if url.scheme == "https":
            options["proxy_headers"] = proxy.headers
            options["server_hostname"] = url.host.rstrip(".")
        else:
            headers.extend(proxy.headers)
        try:
            answer = await self._head(self._open.proxied, target, headers, **options)
        except aiohttp.ClientConnectorCertificateError as error:
            raise before_head(error, url) from error
        except TRANSPORT_ERRORS as error:
            if speaks_no_tls(error):
                raise before_head(error, url) from error
            raise ProxyFault(f"the proxy {proxy.name} did not serve: {brief(error)}") from error
        if answer.status == 407:
            answer.close()
            raise ProxyFault(f"the proxy {proxy.name} refuses the credentials (407)")
        return answer

    async def _head(
        self, session: aiohttp.ClientSession, url: Url, headers: CIMultiDict[str], **options: Any
    ) -> WireResponse:
        """The head; on a new connection where kept ones turn out to be closed (RFC 9112 section 9.3.1)."""
        for replay in range(_STALE_REPLAYS, -1, -1):
            try:
                return await self._once(session, url, headers, **options)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                if not replay:
                    raise
        raise AssertionError("unreachable")  # pragma: no cover

    async def _once(
        self, session: aiohttp.ClientSession, url: Url, headers: CIMultiDict[str], **options: Any
    ) -> WireResponse:
        async with asyncio.timeout(self._head_seconds):
            answer = await session.get(URL(url.text, encoded=True), headers=headers, allow_redirects=False, **options)
        return cast("WireResponse", answer)

    async def _proxy_target(self, url: Url) -> Url:
        """What a proxy is asked for: the URL at an address that may be dialled, or with its name where that is allowed.

        A name of which any address may not be dialled is refused, and an address in the URL itself is always judged.
        """
        where = f"{url.scheme}://{url.netloc}"
        literal = _is_address(url.host)
        if self._proxy_resolves and not literal:
            return url
        found = [url.host] if literal else await self._addresses(url, where)
        try:
            for address in found:
                self._policy.check(address)
        except BlockedAddressError as error:
            raise blocked(where, error) from error
        return replace(url, host=min(found, key=lambda address: ":" in address))  # fewer proxies have IPv6

    async def _addresses(self, url: Url, where: str) -> list[str]:
        try:
            async with asyncio.timeout(self._head_seconds):
                found = await self._open.resolver.resolve(url.host, url.port, family=socket.AF_UNSPEC)
        except (OSError, TimeoutError) as error:
            text = f"the name of {where} cannot be resolved here: {brief(error)}"
            raise failure(errors_pb2.FAILURE_CODE_DOWNLOAD_DNS, text) from error
        if not found:
            raise failure(errors_pb2.FAILURE_CODE_DOWNLOAD_DNS, f"the name of {where} has no address")
        return [result["host"] for result in found]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
