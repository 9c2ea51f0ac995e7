"""The append-only store on Redis streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from kernel.log.offsets import START
from kernel.log.store import Entry, Fields, checked
from kernel.log.waiting import WaitingRoom
from kernel.redis.clients import RedisClients

_TRIM_STEP: Final = 10_000
"""The most entries that one command removes: trimming never holds up the server for long."""


class RedisLog:
    """A `LogStore` on Redis: as durable as the server's `appendfsync` says."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        self._commands = clients.commands
        self._waiting = WaitingRoom(clients)

    async def append(self, stream: str, fields: Fields) -> str:
        """Adds an entry. After an UNAVAILABLE it may have been added."""
        return str((await self._commands.execute_command("XADD", stream, "*", *_pairs(fields))).decode())

    async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
        """Adds entries in one transaction."""
        if not entries:
            return []
        pipe = self._commands.pipeline(transaction=True)
        for fields in entries:
            pipe.execute_command("XADD", stream, "*", *_pairs(fields))
        return [entry.decode() for entry in await pipe.execute()]

    async def read(self, stream: str, after: str = START, limit: int = 100) -> list[Entry]:
        """Entries behind a cursor."""
        return _entries(await self._commands.execute_command("XRANGE", stream, f"({after}", "+", "COUNT", limit))

    async def read_last(self, stream: str, limit: int) -> list[Entry]:
        """The newest entries, oldest first."""
        return _entries(await self._commands.execute_command("XREVRANGE", stream, "+", "-", "COUNT", limit))[::-1]

    async def subscribe(self, stream: str, after: str = START, limit: int = 100) -> AsyncGenerator[list[Entry], None]:
        """Backfill and live entries in one read, with one blocking connection for all subscriptions."""
        while True:
            entries = await self.read(stream, after, limit)
            if entries:
                after = entries[-1].id
                yield entries
            else:
                await self._waiting.wait(stream, after)

    async def trim(self, stream: str, before: str) -> int:
        """Removes entries with lower ids, in steps."""
        return await self._trim(stream, "MINID", before)

    async def trim_length(self, stream: str, longest: int) -> int:
        """Removes the oldest entries beyond a length, in steps."""
        return await self._trim(stream, "MAXLEN", longest)

    async def _trim(self, stream: str, by: str, limit: str | int) -> int:
        removed = 0
        while step := await self.trim_step(stream, by, limit):
            removed += step
        return removed

    async def trim_step(self, stream: str, by: str, limit: str | int) -> int:
        """Removes up to 10,000 entries by `MINID` or `MAXLEN`; 0 once there is nothing more to remove."""
        step = await self._commands.execute_command("XTRIM", stream, by, "~", limit, "LIMIT", _TRIM_STEP)
        # Only whole nodes go by `~`; what is left over lies in one node.
        return int(step) or int(await self._commands.execute_command("XTRIM", stream, by, "=", limit))

    async def length(self, stream: str) -> int:
        """How many entries the stream has."""
        return int(await self._commands.execute_command("XLEN", stream))

    async def first(self, stream: str) -> str | None:
        """The id of the oldest entry."""
        entries = await self.read(stream, START, 1)
        return entries[0].id if entries else None

    async def last(self, stream: str) -> str:
        """The highest id ever given."""
        try:
            facts: Mapping[Any, Any] = await self._commands.xinfo_stream(stream)
        except ResponseError as error:
            if "no such key" in str(error):
                return START
            raise
        newest = facts["last-generated-id"]
        return newest.decode() if isinstance(newest, bytes) else str(newest)

    async def close(self) -> None:
        """Ends the subscriptions; the connections belong to the process."""
        await self._waiting.close()


def _pairs(fields: Fields) -> list[str | bytes]:
    return [part for pair in checked(fields).items() for part in pair]


def _entries(reply: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> list[Entry]:
    return [Entry(entry.decode(), {name.decode(): value for name, value in fields.items()}) for entry, fields in reply]
