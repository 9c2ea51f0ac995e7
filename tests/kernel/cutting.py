"""A proxy that cuts a connection exactly between what Redis has done and its reply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

_CHUNK = 1 << 16


class Cutting:
    """Passes everything on, until it is told whose replies get lost."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._links: set[asyncio.Task[None]] = set()
        self.addr = ""
        self.needle = b""
        """Requests that hold this lose their reply, and their connection with it."""
        self.left = 0
        """How many more."""
        self.cuts = 0

    def lose(self, needle: str, count: int = 1) -> None:
        """The next replies to requests with these bytes do not come back."""
        self.needle, self.left = needle.encode(), count

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection(*self._target)
            doomed = asyncio.Event()
            ways = [
                asyncio.create_task(self._pump(reader, there, lambda data: self._look(data, doomed))),
                asyncio.create_task(self._pump(back, writer, lambda _: not doomed.is_set())),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for side in (writer, there):
                if side is not None:
                    side.transport.abort()

    def _look(self, data: bytes, doomed: asyncio.Event) -> bool:
        if self.left and self.needle in data:
            self.left -= 1
            self.cuts += 1
            doomed.set()
        return True

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]
    ) -> None:
        with contextlib.suppress(OSError):
            while (data := await reader.read(_CHUNK)) and passes(data):
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)


@contextlib.asynccontextmanager
async def cutting(target: str) -> AsyncIterator[Cutting]:
    """A proxy before the server at `target`."""
    proxy = Cutting(target)
    server = await asyncio.start_server(proxy.accepted, "127.0.0.1", 0)
    proxy.addr = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
