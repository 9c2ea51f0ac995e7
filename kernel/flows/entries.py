"""Streams of flows, read with a cursor. What somebody else has put there and is no event is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event
from kernel.flows.codec import event_of
from kernel.log.offsets import START
from kernel.log.store import Fields
from kernel.redis import RedisClients
from kernel.watch import reading

PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a stream."""

    events: list[Event]
    """In the order in which they were asked for."""
    place: str
    """The last entry of the piece, whatever it was."""
    is_last: bool
    """Whether there was nothing more in this direction."""


def canonical(stream: str, entry_id: bytes, held: Fields) -> Event | None:
    """The event of an entry; None for an entry that is no event."""
    try:
        event = event_of(stream, entry_id.decode(), held)
    except (KeyError, ValueError):
        return None
    return event if event.kind else None


def of_rows(stream: str, rows: Iterable[reading.Row]) -> list[Event]:
    """The events of an XREAD."""
    found = (
        canonical(stream, row[0], {name.decode(): value for name, value in zip(row[1][::2], row[1][1::2], strict=True)})
        for row in rows
    )
    return [event for event in found if event is not None]


async def behind(clients: RedisClients, cursors: Mapping[str, str], count: int = PAGE) -> list[Page]:
    """Up to `count` entries of each stream behind its cursor, oldest first, in one round trip. Raises `UNAVAILABLE`."""
    pipe = clients.commands.pipeline(transaction=False)
    for stream, after in cursors.items():
        pipe.execute_command("XRANGE", stream, f"({after}", "+", "COUNT", count)
    replies = await pipe.execute() if cursors else []
    return [_page(stream, after, rows, count) for (stream, after), rows in zip(cursors.items(), replies, strict=True)]


async def before(clients: RedisClients, stream: str, end: str, count: int = PAGE) -> Page:
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


def _page(stream: str, place: str, rows: Sequence[Any], count: int) -> Page:
    found = (
        canonical(stream, entry_id, {name.decode(): value for name, value in held.items()}) for entry_id, held in rows
    )
    events = [event for event in found if event is not None]
    return Page(events, rows[-1][0].decode() if rows else place, len(rows) < count)
