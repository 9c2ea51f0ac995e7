"""One blocking connection for all subscriptions of a process: it only tells who has something to read.

A subscriber that has read to the end registers its cursor and waits. A single XREAD blocks on the streams of everyone
who waits; when an entry comes, its waiters are woken and read it themselves, at their own pace. A new waiter interrupts
the XREAD with CLIENT UNBLOCK. So a thousand subscribers cost one connection, and a slow one costs no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from kernel.errors import FetchboxError
from kernel.log.offsets import parse_id
from kernel.redis.clients import RedisClients

_BLOCK_MS: Final = 5_000
_UNBLOCK_PAUSE: Final = 0.002

_Waiter = tuple[str, "asyncio.Future[None]"]


class WaitingRoom:
    """Waits for entries behind cursors, for any number of streams at once."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        self._waiters: dict[str, list[_Waiter]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._unblocker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_seen = True
        self._connection_id = 0

    async def wait(self, stream: str, after: str) -> None:
        """Returns when there may be an entry behind `after`. Raises `UNAVAILABLE` where Redis does not answer."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (after, future)
        self._waiters.setdefault(stream, []).append(waiter)
        self._all_seen = False
        if self._reader is None:
            self._reader = self._start(self._read())
        elif self._unblocker is None or self._unblocker.done():
            self._unblocker = self._start(self._unblock())
        try:
            await future
        finally:
            self._forget(stream, waiter)

    async def close(self) -> None:
        """Ends the blocking read; those who wait are cancelled. Safe twice."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reader = None
        for waiters in self._waiters.values():
            for _, future in waiters:
                future.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="log-wait")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self) -> None:
        client: Any = self._clients.blocking.client()
        try:
            await client.initialize()
            self._connection_id = int(await client.execute_command("CLIENT ID"))
            while self._waiters:
                self._all_seen = True
                self._wake(await self._block(client))
        except Exception as error:  # noqa: BLE001  # whoever waits is told, whatever it was
            self._fail(error)
        finally:
            # Before anything is awaited: who comes from now on starts a reader of their own.
            self._reader = None
            self._connection_id = 0
            await client.aclose()

    async def _block(self, client: Any) -> Mapping[str, str]:
        """The first new id of each stream that has one."""
        lowest = {name: min((after for after, _ in waiters), key=parse_id) for name, waiters in self._waiters.items()}
        reply = await client.execute_command(
            "XREAD", "COUNT", 1, "BLOCK", _BLOCK_MS, "STREAMS", *lowest.keys(), *lowest.values()
        )
        return {stream.decode(): entries[0][0].decode() for stream, entries in reply or ()}

    def _wake(self, news: Mapping[str, str]) -> None:
        for stream, first in news.items():
            for after, future in self._waiters.get(stream, ()):
                # `first` follows the lowest cursor; a waiter that has it already goes on waiting.
                if not future.done() and parse_id(after) < parse_id(first):
                    future.set_result(None)
            self._keep(stream, [waiter for waiter in self._waiters.get(stream, ()) if not waiter[1].done()])

    async def _unblock(self) -> None:
        """Interrupts the XREAD until it has seen the newest waiter: one that is just being sent is not blocked yet."""
        while not self._all_seen and self._waiters:
            if self._connection_id:
                try:
                    await self._clients.commands.execute_command("CLIENT UNBLOCK", self._connection_id)
                except FetchboxError:
                    return  # The reader meets the same outage and tells the waiters.
            await asyncio.sleep(_UNBLOCK_PAUSE)

    def _fail(self, error: Exception) -> None:
        for waiters in self._waiters.values():
            for _, future in waiters:
                if not future.done():
                    future.set_exception(error)
        self._waiters.clear()

    def _forget(self, stream: str, waiter: _Waiter) -> None:
        self._keep(stream, [other for other in self._waiters.get(stream, ()) if other is not waiter])

    def _keep(self, stream: str, waiters: list[_Waiter]) -> None:
        if waiters:
            self._waiters[stream] = waiters
        else:
            self._waiters.pop(stream, None)
