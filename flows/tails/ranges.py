"""Reading streams of flows to their ends, and single events by their ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from fetchbox.flow.v1.event_pb2 import Event
from flows.journal import entries
from kernel.log.offsets import START
from kernel.redis.clients import RedisClients

_MOST: Final = 1000
"""Entries in one round trip, however many streams they are of: what follows it holds up all else for some ms."""
_LEAST: Final = 10

Sink: TypeAlias = Callable[[Event], object]


async def feed(clients: RedisClients, sinks: Mapping[str, Sink]) -> None:
    """Gives each sink all events of its stream, oldest first, in bounded pieces. Raises `UNAVAILABLE`."""
    cursors = dict.fromkeys(sinks, START)
    while cursors:
        pages = await entries.behind(clients, cursors, max(_LEAST, _MOST // len(cursors)))
        for stream, page in zip(tuple(cursors), pages, strict=True):
            for event in page.events:
                sinks[stream](event)
            cursors[stream] = page.place
            if page.is_last:
                del cursors[stream]


async def at(clients: RedisClients, stream: str, ids: Sequence[str]) -> list[Event]:
    """The events with these ids that are still there, in one round trip. Raises `UNAVAILABLE`."""
    pipe = clients.commands.pipeline(transaction=False)
    for entry_id in ids:
        pipe.execute_command("XRANGE", stream, entry_id, entry_id)
    replies: list[Any] = await pipe.execute() if ids else []
    return entries.of_pairs(stream, (row for rows in replies for row in rows))
