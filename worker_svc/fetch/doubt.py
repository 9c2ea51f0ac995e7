"""What an attempt by proxies has met so far, and by which proxy it goes on.

A proxy that does not serve is at fault, and the next one is asked. Of some failures nobody can tell whether the proxy
or the origin made them: a 502 in plain HTTP, a body that broke on its way. Then a proxy of the next pool is asked, a
few times in one attempt. Where that one serves, the former was at fault; where they all meet the same, the origin is,
unless the answer itself says that a proxy made it. Meanwhile none of them counts against the origin: its circuit
breaker and its gate are not told. What fails in the end names every proxy that was asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name, is_retryable
from kernel.foreign_text import fit
from worker_svc.fetch.answer import field, fields
from worker_svc.fetch.failure import FetchFailure, failure
from worker_svc.fetch.proxies import Proxies, Proxy, ProxyFault
from worker_svc.fetch.wire import WireResponse

DOUBTED: Final = "unclear"
"""`facts["fault"]` of a failure that the proxy or the origin may have made."""
PROXY_ERROR: Final = "proxy_error"
"""The fact with which an answer said that a proxy made it."""
_ERROR: Final = re.compile(r";\s*error\s*=", re.IGNORECASE)
_RECEIVED: Final = re.compile(r";\s*received-status\s*=", re.IGNORECASE)
"""The members of a `Proxy-Status`: that the proxy met an error, and that it passes on a status of the next server's."""
_MOST_DOUBTS: Final = 3
"""How many proxies are asked in one attempt while each answers what may be the origin's answer, too."""
_SHOWN: Final = 4
_LONGEST_NAMES: Final = 512


def _names(*found: codes.FailureCode.ValueType) -> frozenset[str]:
    return frozenset(map(failure_name, found))


_STATUSES: Final = frozenset(failure_name(codes.FAILURE_CODE_DOWNLOAD_HTTP, status) for status in (403, 502, 503, 504))
_CUT: Final = _names(
    codes.FAILURE_CODE_DOWNLOAD_TRUNCATED,
    codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET,
    codes.FAILURE_CODE_DOWNLOAD_READ_TIMEOUT,
    codes.FAILURE_CODE_DOWNLOAD_TOO_SLOW,
)
"""What a tunnel can do to a body that it cannot read."""
_CHANGED: Final = _names(
    codes.FAILURE_CODE_DOWNLOAD_PROTOCOL,
    codes.FAILURE_CODE_DOWNLOAD_TRUNCATED_ENCODING,
    codes.FAILURE_CODE_DOWNLOAD_CORRUPT_ENCODING,
    codes.FAILURE_CODE_DOWNLOAD_CHECKSUM_MISMATCH,
)
"""What a proxy can do to a body that it reads."""


def doubt(error: BaseException, answer: WireResponse | None = None, *, tunnel: bool) -> None:
    """Marks a failure that came by a proxy, and that the proxy may have made. `tunnel`: it was asked by CONNECT."""
    if not isinstance(error, FetchFailure) or error.facts.get("fault") != "origin":
        return
    mark = "" if answer is None or tunnel else _mark(answer)
    if mark:
        error.facts[PROXY_ERROR] = fit(mark, 256)
    of_proxies = not tunnel and (bool(mark) or error.code in _STATUSES | _CHANGED or _is_of_proxies(answer))
    if of_proxies or error.code in _CUT:
        error.facts["fault"] = DOUBTED


def _mark(answer: WireResponse) -> str:
    """What a proxy says of an answer that it made itself: `Proxy-Status` with an error (RFC 9209), or Squid's field."""
    if answer.status < 400:
        return ""
    told = "; ".join(value.decode("latin-1") for value in fields(answer, "proxy-status"))
    if _ERROR.search(told) and not _RECEIVED.search(told):
        return f"Proxy-Status: {told}"
    squid = field(answer, "x-squid-error")
    return f"X-Squid-Error: {squid}" if squid else ""


def _is_of_proxies(answer: WireResponse | None) -> bool:
    """Whether an error names the proxies on its way and no server that made it."""
    return answer is not None and answer.status >= 400 and bool(fields(answer, "via")) and not fields(answer, "server")


class Tries:
    """The proxies that one attempt asks."""

    def __init__(self, proxies: Proxies, pools: Iterable[str]) -> None:
        self._proxies = proxies
        self._left = proxies.candidates(pools)
        self._asked: list[str] = []
        self._faults: list[str] = []
        self._doubts: list[tuple[Proxy, FetchFailure]] = []

    def __iter__(self) -> Iterator[Proxy]:
        while self._left and len(self._doubts) < _MOST_DOUBTS:
            proxy = self._left.pop(0)
            self._asked.append(proxy.name)
            yield proxy

    def at_fault(self, proxy: Proxy, fault: ProxyFault) -> None:
        """The proxy did not serve."""
        self._proxies.failed(proxy)
        self._faults.append(str(fault))

    def failed(self, proxy: Proxy, error: FetchFailure) -> None:
        """The fetch by this proxy failed: raises the failure unless another proxy may do better."""
        if error.facts.get("fault") != DOUBTED:
            raise self.named(error)
        self._doubts.append((proxy, error))
        self._left.sort(key=lambda other: other.pool == proxy.pool)

    def served(self, proxy: Proxy) -> None:
        """The fetch by this proxy went well, so that those before it were at fault."""
        self._proxies.served(proxy)
        for former, _ in self._doubts:
            self._proxies.failed(former)

    def failure(self) -> FetchFailure:
        """Why the attempt failed: what the proxies asked all met, or that none served."""
        last = self._doubts[-1][1] if self._doubts else None
        said = [proxy for proxy, error in self._doubts if PROXY_ERROR in error.facts]
        agreed = not self._faults and len({error.code for _, error in self._doubts}) == 1
        if last is not None and not said and (agreed or is_retryable(last.code)):
            return self.named(last)
        for proxy in said:
            self._proxies.failed(proxy)
        told = [*self._faults, *(f"{error.message} (by {proxy.name})" for proxy, error in self._doubts)]
        text = f"no proxy served: {'; '.join(told[-_SHOWN:])}"
        facts = {"proxies_tried": len(told), **(last.facts if said and last is not None else {}), "fault": "proxy"}
        return self.named(failure(codes.FAILURE_CODE_DOWNLOAD_PROXY, text, facts=facts))

    def named(self, error: FetchFailure) -> FetchFailure:
        """The failure with the names of the proxies that were asked, in its text and in its facts."""
        names = fit(", ".join(self._asked), _LONGEST_NAMES)
        error.facts["proxies"] = names
        error.add(f"by the proxies {names}" if len(self._asked) > 1 else f"by the proxy {names}")
        return error
