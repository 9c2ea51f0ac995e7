"""The append-only store in memory, for tests: a ring buffer a stream, gone with the process."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kernel.clock import Clock, SystemClock
from kernel.log.offsets import START, next_id, parse_id
from kernel.log.store import Entry, Fields, checked


@dataclass(slots=True)
class _Stream:
    entries: list[Entry] = field(default_factory=list)
    last: str = START
    grown: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryLog:
    """A `LogStore` that keeps the newest `capacity` entries of each stream."""

    def __init__(self, capacity: int = 10_000, clock: Clock | None = None) -> None:
        self._capacity = capacity
        self._clock = clock or SystemClock()
        self._streams: dict[str, _Stream] = {}

    async def append(self, stream: str, fields: Fields) -> str:
        """Adds an entry; the oldest goes when the ring is full."""
        return (await self.append_many(stream, [fields]))[0]

    async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
        """Adds entries in order."""
        fresh = [checked(fields) for fields in entries]
        kept = self._streams.setdefault(stream, _Stream()) if fresh else _Stream()
        ids = []
        for fields in fresh:
            kept.last = next_id(kept.last, self._clock.now_ms())
            kept.entries.append(Entry(kept.last, dict(fields)))
            ids.append(kept.last)
        # Dropping in large steps keeps an append cheap; reads never look behind the capacity.
        if len(kept.entries) > 2 * self._capacity:
            del kept.entries[: -self._capacity]
        kept.grown.set()
        kept.grown = asyncio.Event()
        return ids

    async def read(self, stream: str, after: str = START, limit: int = 100) -> list[Entry]:
        """Entries behind a cursor."""
        entries = self._visible(stream)
        begin = bisect_right(entries, parse_id(after), key=_place)
        return list(islice(entries, begin, begin + limit))

    async def read_last(self, stream: str, limit: int) -> list[Entry]:
        """The newest entries, oldest first."""
        entries = self._visible(stream)
        return entries[max(0, len(entries) - limit) :]

    async def subscribe(self, stream: str, after: str = START, limit: int = 100) -> AsyncGenerator[list[Entry], None]:
        """Backfill and live entries in one read."""
        while True:
            kept = self._streams.setdefault(stream, _Stream())
            grown = kept.grown
            entries = await self.read(stream, after, limit)
            if entries:
                after = entries[-1].id
                yield entries
            else:
                await grown.wait()

    async def trim(self, stream: str, before: str) -> int:
        """Removes entries with lower ids."""
        entries = self._visible(stream)
        return self._drop(stream, bisect_left(entries, parse_id(before), key=_place))

    async def trim_length(self, stream: str, longest: int) -> int:
        """Removes the oldest entries beyond a length."""
        return self._drop(stream, max(0, len(self._visible(stream)) - longest))

    async def length(self, stream: str) -> int:
        """How many entries are kept."""
        return len(self._visible(stream))

    async def first(self, stream: str) -> str | None:
        """The id of the oldest entry."""
        entries = self._visible(stream)
        return entries[0].id if entries else None

    async def last(self, stream: str) -> str:
        """The highest id ever given."""
        kept = self._streams.get(stream)
        return kept.last if kept else START

    async def close(self) -> None:
        """Forgets everything."""
        self._streams.clear()

    def _visible(self, stream: str) -> list[Entry]:
        kept = self._streams.get(stream)
        if kept is None:
            return []
        beyond = len(kept.entries) - self._capacity
        return kept.entries[beyond:] if beyond > 0 else kept.entries

    def _drop(self, stream: str, count: int) -> int:
        if count:
            kept = self._streams[stream]
            del kept.entries[: len(kept.entries) - len(self._visible(stream)) + count]
        return count


def _place(entry: Entry) -> tuple[int, int]:
    return parse_id(entry.id)
