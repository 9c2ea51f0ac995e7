"""Proxies in the order in which a fetch tries them, and a memory of those that failed just now."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from yarl import URL

from fetchbox.config.v1.config_pb2 import ProxyPool
from fetchbox.errors.v1 import errors_pb2
from kernel.clock import Clock
from kernel.telemetry import metrics
from worker_svc.fetch.failure import failure

REST_SECONDS: Final = 30.0
"""How long a proxy that failed is tried only after the others."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy of a pool. Its credentials are in `headers` and in nothing that is printed."""

    pool: str
    name: str
    """`host:port`, for records."""
    url: URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


class ProxyFault(Exception):  # noqa: N818 - the proxy is at fault, the fetch goes on
    """A proxy did not serve; the origin has not been reached and is not to blame."""


class Proxies:
    """The configured pools."""

    def __init__(self, pools: Mapping[str, ProxyPool], clock: Clock, rng: random.Random) -> None:
        self._pools = {name: tuple(parse_proxy(name, url) for url in pool.urls) for name, pool in pools.items()}
        self._clock = clock
        self._rng = rng
        self._resting: dict[str, float] = {}

    def candidates(self, names: Iterable[str]) -> list[Proxy]:
        """Every proxy of the pools: pool by pool, equals in random order, those that failed just now last.

        FetchFailure `VALIDATION_TASK` for a pool that is not configured.
        """
        found: list[Proxy] = []
        for name in names:
            if name not in self._pools:
                text = f"the proxy pool {name[:128]!r} is not configured"
                raise failure(errors_pb2.FAILURE_CODE_VALIDATION_TASK, text, fault="task")
            equals = list(self._pools[name])
            self._rng.shuffle(equals)
            found.extend(equals)
        return sorted(found, key=self._rests)

    def failed(self, proxy: Proxy) -> None:
        """Lets the proxy rest."""
        metrics.PROXY_FAILURES.labels(proxy.pool).inc()
        self._resting[proxy.name] = self._clock.monotonic() + REST_SECONDS

    def served(self, proxy: Proxy) -> None:
        """Ends the rest of a proxy that works."""
        self._resting.pop(proxy.name, None)

    def _rests(self, proxy: Proxy) -> bool:
        return self._resting.get(proxy.name, 0.0) > self._clock.monotonic()


def parse_proxy(pool: str, text: str) -> Proxy:
    """A proxy of this pool from `http://user:password@host:port`."""
    url = URL(text)
    headers = {}
    if url.user is not None:
        pair = f"{url.user}:{url.password or ''}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return Proxy(pool, f"{url.host}:{url.port}", url.with_user(None), headers)
