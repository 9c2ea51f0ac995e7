"""Streams of flows, read with a cursor. What somebody else has put there and is no event is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event
from flows.model.codec import canonical
from kernel.log.offsets import START
from kernel.redis.clients import RedisClients
from kernel.watch import reading

PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class EntriesPage:
    """A piece of a stream."""

    events: list[Event]
    """In the order in which they were asked for."""
    place: str
    """The last entry of the piece, whatever it was."""
    is_last: bool
    """Whether there was nothing more in this direction."""


def of_rows(stream: str, rows: Iterable[reading.Row]) -> list[Event]:
    """The events of the rows that Redis sends for an XREAD or an XRANGE."""
    return of_pairs(stream, ((entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in rows))


def of_pairs(stream: str, rows: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> list[Event]:
    """The events of the rows that a client of Redis makes of that."""
    found = (
        canonical(stream, entry_id.decode(), {name.decode(errors="replace"): value for name, value in held.items()})
        for entry_id, held in rows
    )
    return [event for event in found if event is not None]


async def behind(clients: RedisClients, cursors: Mapping[str, str], count: int = PAGE) -> list[EntriesPage]:
    """Up to `count` entries of each stream behind its cursor, oldest first, in one round trip. Raises `UNAVAILABLE`."""
    pipe = clients.commands.pipeline(transaction=False)
    for stream, after in cursors.items():
        pipe.execute_command("XRANGE", stream, f"({after}", "+", "COUNT", count)
    replies = await pipe.execute() if cursors else []
    return [_page(stream, after, rows, count) for (stream, after), rows in zip(cursors.items(), replies, strict=True)]


async def before(clients: RedisClients, stream: str, end: str, count: int = PAGE) -> EntriesPage:
    """Up to `count` entries before an id, newest first; an empty id is the end. Raises `UNAVAILABLE`."""
    rows = await clients.commands.execute_command("XREVRANGE", stream, f"({end}" if end else "+", "-", "COUNT", count)
    return _page(stream, end, rows, count)


async def last(clients: RedisClients, streams: Sequence[str]) -> list[str]:
    """The id of the newest entry of each stream; `START` where there is none. Raises `UNAVAILABLE`."""
    pipe = clients.commands.pipeline(transaction=False)
    for stream in streams:
        pipe.execute_command("XREVRANGE", stream, "+", "-", "COUNT", 1)
    replies: list[Any] = await pipe.execute() if streams else []
    return [rows[0][0].decode() if rows else START for rows in replies]


def _page(stream: str, place: str, rows: Sequence[Any], count: int) -> EntriesPage:
    return EntriesPage(of_pairs(stream, rows), rows[-1][0].decode() if rows else place, len(rows) < count)
