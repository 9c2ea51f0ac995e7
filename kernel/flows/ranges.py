"""Reading streams of flows in bounded pieces, many of them in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event
from kernel.flows.codec import event_of
from kernel.redis import RedisClients

_MOST: Final = 5000
"""Entries in one round trip, however many streams they are of."""
_LEAST: Final = 50

Sink = Callable[[Event], object]


async def feed(clients: RedisClients, sinks: Mapping[str, Sink]) -> None:
    """Gives each sink all events of its stream, oldest first, until none is left. Raises `UNAVAILABLE`."""
    after = dict.fromkeys(sinks, "-")
    while after:
        count = max(_LEAST, _MOST // len(after))
        async with clients.commands.pipeline(transaction=False) as batch:
            for stream, place in after.items():
                batch.execute_command("XRANGE", stream, place, "+", "COUNT", count)
            replies = await batch.execute()
        for stream, rows in zip(tuple(after), replies, strict=True):
            for event in _events(stream, rows):
                sinks[stream](event)
            if len(rows) < count:
                del after[stream]
            else:
                after[stream] = f"({rows[-1][0].decode()}"


async def behind(clients: RedisClients, stream: str, after: str, count: int) -> list[Event]:
    """Up to `count` events behind an id, oldest first; an empty id is the beginning."""
    rows = await clients.commands.execute_command("XRANGE", stream, f"({after}" if after else "-", "+", "COUNT", count)
    return _events(stream, rows)


async def before(clients: RedisClients, stream: str, end: str, count: int) -> list[Event]:
    """Up to `count` events before an id, newest first; an empty id is the end."""
    rows = await clients.commands.execute_command("XREVRANGE", stream, f"({end}" if end else "+", "-", "COUNT", count)
    return _events(stream, rows)


async def at(clients: RedisClients, stream: str, ids: Sequence[str]) -> list[Event]:
    """The events with these ids that are still there."""
    async with clients.commands.pipeline(transaction=False) as batch:
        for entry_id in ids:
            batch.execute_command("XRANGE", stream, entry_id, entry_id)
        replies = await batch.execute() if ids else []
    return [event for rows in replies for event in _events(stream, rows)]


def _events(stream: str, rows: Iterable[Any]) -> list[Event]:
    return [
        event_of(stream, entry_id.decode(), {name.decode(): value for name, value in held.items()})
        for entry_id, held in rows
    ]
