"""The record adapter: canonical records over any append-only store (Redis, files, memory)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE
from fetchbox.flow.v1.event_pb2 import Event
from flows.model.checks import check
from flows.model.codec import canonical, event_of, fields
from kernel.errors import FetchboxError
from kernel.log.offsets import START
from kernel.log.store import Entry, LogStore
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

Unsubscribe: TypeAlias = Callable[[], Awaitable[None]]
"""Ends a subscription: nothing is delivered after it returns. It raises what the subscriber raised, if it did."""

_PATIENCE: Final = 1.0
"""Seconds until a store that does not answer is asked again."""

_log = get_logger("flows")


class RecordAdapter:
    """Streams of events. The same envelope comes back from every store: what is read is what `append` returned."""

    def __init__(self, store: LogStore, max_bytes: int = 65_536) -> None:
        """`max_bytes`: an event of so many bytes as JSON, or more, is refused (`flow_engine.max_event_bytes`)."""
        self._store = store
        self._max_bytes = max_bytes

    async def append(self, stream: str, event: Event) -> Event:
        """Stores an event, which has neither id nor stream; returns the record. INVALID_PAYLOAD where it may not be."""
        check(event, self._max_bytes, stream)
        held = fields(event)
        return event_of(stream, await self._store.append(stream, held), held)

    async def read(self, stream: str, *, after: str = START, limit: int = 100, last: int = 0) -> list[Event]:
        """Up to `limit` records behind a cursor, oldest first; with `last` the newest so many of all."""
        entries = await (self._store.read_last(stream, last) if last else self._store.read(stream, after, limit))
        return _events(stream, entries)

    async def subscribe(
        self, stream: str, on_event: Callable[[Event], None], *, after: str | None = None
    ) -> Unsubscribe:
        """Calls `on_event` with each record behind `after`, in order; without it with what comes from now on.

        An exception of `on_event` ends the subscription. While the store does not answer, the subscription waits.
        """
        cursor = await self._store.last(stream) if after is None else after
        task = asyncio.create_task(self._deliver(stream, on_event, cursor), name=f"subscription-{stream}")

        async def unsubscribe() -> None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

        return unsubscribe

    async def _deliver(self, stream: str, on_event: Callable[[Event], None], cursor: str) -> None:
        while True:
            try:
                async with aclosing(self._store.subscribe(stream, cursor)) as batches:
                    async for entries in batches:
                        for event in _events(stream, entries):
                            on_event(event)
                        cursor = entries[-1].id
            except FetchboxError as error:
                if error.reason != REASON_UNAVAILABLE:
                    raise
                await asyncio.sleep(_PATIENCE)


def _events(stream: str, entries: Sequence[Entry]) -> list[Event]:
    """The events of entries; what somebody else wrote into the stream is counted and left out."""
    found = []
    for entry in entries:
        event = canonical(stream, entry.id, entry.fields)
        if event is not None:
            found.append(event)
            continue
        metrics.UNDECODABLE.labels(topic="flows").inc()
        _log.warn("undecodable_entry", topic=stream, entry=entry.id)
    return found
