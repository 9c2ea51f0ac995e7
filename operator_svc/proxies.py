"""Whether each proxy of each pool can be reached: a TCP connection, remembered for a moment."""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from fetchbox.config.v1.config_pb2 import ProxyPool
from kernel.clock import Clock

KEEP_SECONDS = 15.0
CONNECT_SECONDS = 1.0
_DEFAULT_PORTS = {"http": 80, "https": 443}
"""Of the schemes that a configuration may name."""


class ProxyPools:
    """The proxies of the configuration."""

    def __init__(self, pools: Mapping[str, ProxyPool], clock: Clock, keep_seconds: float = KEEP_SECONDS) -> None:
        self._proxies = [(name, *_address(url)) for name, pool in sorted(pools.items()) for url in pool.urls]
        self._clock = clock
        self._keep = keep_seconds
        self._found: tuple[float, Sequence[str]] | None = None
        self._lock = asyncio.Lock()

    async def problems(self) -> Sequence[str]:
        """The proxies that do not accept a connection, by pool and address, without credentials."""
        async with self._lock:
            if self._found is None or self._clock.monotonic() - self._found[0] >= self._keep:
                answers = await asyncio.gather(*(_reaches(host, port) for _, host, port in self._proxies))
                lost = [
                    f"{name}: {host}:{port} does not accept connections"
                    for (name, host, port), reached in zip(self._proxies, answers, strict=True)
                    if not reached
                ]
                self._found = (self._clock.monotonic(), lost)
            return self._found[1]


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]


async def _reaches(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
