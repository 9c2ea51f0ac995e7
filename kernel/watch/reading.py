"""One XREAD over any number of streams, on a connection of its own, whose wait can be interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeAlias

import hiredis
from redis.exceptions import ResponseError

from kernel.errors import FetchboxError, unavailable
from kernel.redis.clients import BLOCK_MARGIN, RedisClients, is_other_kind
from kernel.redis.pipe import Pipe
from kernel.telemetry.logs import get_logger

_log = get_logger("watch.reading")

BLOCK_SECONDS = 1.0
"""How long a read waits; where CLIENT UNBLOCK is not permitted, also how long a new stream may wait for its first."""
_COUNT = 500
"""Entries of one stream in one answer."""

Row: TypeAlias = list[Any]
"""An entry: its id, and field, value, ... in one list, all bytes."""


class StreamRead:
    """The connection. It comes back after every outage; the same caller reads again."""

    def __init__(self, clients: RedisClients, name: str) -> None:
        self._clients = clients
        self._name = name
        self._pipe: Pipe | None = None
        self._client_id = 0
        self._may_interrupt = True

    async def read(self, cursors: Mapping[str, str]) -> dict[str, list[Row]]:
        """What follows each stream's cursor; empty when nothing came in time. Raises `UNAVAILABLE`.

        A key that holds no stream is left out as long as it does, so that it holds up none of the others.
        """
        pipe = await self._connected()
        reply = await self._read(pipe, cursors)
        if isinstance(reply, hiredis.ReplyError) and is_other_kind(reply):
            others = await self._streams(pipe, cursors)
            _log.warn("streams_left_out", count=len(cursors) - len(others))
            if not others:
                await asyncio.sleep(BLOCK_SECONDS)
                return {}
            reply = await self._read(pipe, others)
        if isinstance(reply, hiredis.ReplyError):
            self.close()
            raise unavailable(f"Redis at {self._clients.address} refuses to read: {reply}")
        return {name.decode(): rows for name, rows in reply or ()}

    async def _read(self, pipe: Pipe, cursors: Mapping[str, str]) -> Any:
        block = int(BLOCK_SECONDS * 1000)
        command = ("XREAD", "COUNT", _COUNT, "BLOCK", block, "STREAMS", *cursors, *cursors.values())
        return (await pipe.run([command], BLOCK_SECONDS + BLOCK_MARGIN))[0]

    async def _streams(self, pipe: Pipe, cursors: Mapping[str, str]) -> dict[str, str]:
        """Those of the keys that hold a stream, or nothing yet."""
        kinds = await pipe.run([("TYPE", name) for name in cursors])
        return {
            name: after
            for (name, after), kind in zip(cursors.items(), kinds, strict=True)
            if kind in (b"stream", b"none", "stream", "none")
        }

    async def interrupt(self) -> None:
        """Ends the wait of a read, as if its time were over. One that has not begun to wait goes on."""
        if not self._client_id or not self._may_interrupt:
            return
        try:
            await self._clients.commands.execute_command("CLIENT UNBLOCK", self._client_id)
        except FetchboxError:
            pass  # the read meets the same outage
        except ResponseError as error:
            self._may_interrupt = False
            _log.warn("unblock_refused", error=str(error))

    def close(self) -> None:
        """Drops the connection; the next read makes another."""
        pipe, self._pipe, self._client_id = self._pipe, None, 0
        if pipe is not None:
            pipe.close()

    async def _connected(self) -> Pipe:
        if self._pipe is not None and not self._pipe.lost:
            return self._pipe
        self.close()
        self._pipe = await self._clients.pipe(self._name)
        reply = (await self._pipe.run([("CLIENT", "ID")]))[0]
        self._client_id = reply if isinstance(reply, int) else 0
        return self._pipe
