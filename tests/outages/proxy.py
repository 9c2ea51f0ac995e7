"""A TCP proxy whose target can be switched: what stands between clients and a server that moves.

It has a thread and an event loop of its own, so that a busy test does not slow it down. An address that moves reaches
clients in three ways, and this knows all of them: old connections are cut (`cut`), they stay with the old server
(`lead_to` alone), or they never say anything again, not even that they are closed (`hold`, then `desert`).
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_CHUNK = 1 << 16


class Proxy:
    """Listens at `port` on loopback from `start` to `stop`."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.connections = 0
        """How many were accepted so far."""
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._flowing = asyncio.Event()
        self._answering = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def addr(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self._run(self._open())

    def stop(self) -> None:
        """Closes all connections. Safe twice."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def lead_to(self, target: int) -> None:
        """New connections go there; those that are open stay where they are."""
        self._target = target

    def cut(self) -> None:
        """Drops every open connection."""
        self._call(self._drop)

    def hold(self) -> None:
        """Nothing passes any more, in either direction, and nobody is told: a peer that is gone without a word."""
        self._call(self._flowing.clear)

    def mute(self) -> None:
        """Requests pass, and answers do not."""
        self._call(self._answering.clear)

    def flow(self) -> None:
        """Everything passes again, also what was held."""
        self._call(self._all_pass)

    def desert(self, target: int) -> None:
        """What is held stays so for ever; new connections go there."""
        self.lead_to(target)
        self._call(self._begin_anew)

    def _begin_anew(self) -> None:
        self._flowing, self._answering = asyncio.Event(), asyncio.Event()
        self._all_pass()

    def _all_pass(self) -> None:
        self._flowing.set()
        self._answering.set()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _call(self, act: Callable[[], object]) -> None:
        async def run() -> None:
            act()

        self._run(run())

    async def _open(self) -> None:
        self._all_pass()
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        while self._links:
            links = list(self._links)
            self._drop()
            await asyncio.gather(*links, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close their sockets with the next turn of the loop
        await asyncio.sleep(0)

    def _drop(self) -> None:
        for link in self._links:
            link.cancel()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        link = self._loop.create_task(self._carry(reader, writer))
        self._links.add(link)

        def ended(_link: asyncio.Task[None]) -> None:  # also of one that was cancelled before it began
            self._links.discard(link)
            writer.transport.abort()

        link.add_done_callback(ended)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing, answering = self._flowing, self._answering
        await flowing.wait()
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            return  # nobody listens there
        pumps = (_pump(reader, there, flowing), _pump(back, writer, flowing, answering))
        ways = {asyncio.create_task(pump) for pump in pumps}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            await flowing.wait()
        finally:
            for way in ways:
                way.cancel()
            there.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *open_when: asyncio.Event) -> None:
    while data := await reader.read(_CHUNK):
        for gate in open_when:
            await gate.wait()
        writer.write(data)
        await writer.drain()
