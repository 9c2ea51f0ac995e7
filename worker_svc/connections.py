"""The fetcher's connections, as a duty of the service."""

from __future__ import annotations

from worker_svc.fetch import Fetcher


class Connections:
    """Opens the fetcher's pools before the first task and closes them after the last."""

    name = "connections"

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def start(self) -> None:
        """Makes the pools; connects to nothing."""
        await self._fetcher.start()

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: the slots wait for their tasks."""

    async def stop(self) -> None:
        """Closes every connection; safe to call twice."""
        await self._fetcher.close()
