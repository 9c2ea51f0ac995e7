"""Wakes an engine when a run is to be looked at at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from kernel.errors import FetchboxError
from kernel.log.offsets import START
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.service.service import Loop
from kernel.watch.reading import StreamRead

_PAUSE: Final = 0.5
"""Seconds, while Redis does not answer."""


class Bell(Loop):
    """A duty: waits on the stream that grows with each signal."""

    def __init__(self, clients: RedisClients) -> None:
        super().__init__("flow-bell")
        self._read = StreamRead(clients, self.name)
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """As if there had been a signal."""
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Until there is, or since the last wait was, a signal, for so long at most; whether there was one."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        rung = self._rung.is_set()
        self._rung.clear()
        return rung

    async def run(self) -> None:
        """Waits for signals; an outage only makes engines look more seldom."""
        cursor = START
        while True:
            try:
                found = await self._read.read({keys.FLOWS_WAKE: cursor})
            except FetchboxError:
                await asyncio.sleep(_PAUSE)
                continue
            for rows in found.values():
                cursor = rows[-1][0].decode()
                self._rung.set()

    async def stop(self) -> None:
        """Ends the wait and drops the connection; safe twice."""
        await super().stop()
        self._read.close()
