"""The runs of one or of many flows, newest first: their indexes are merged by the ids of their entries."""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from flows.journal.run_entries import RunEntry, indexed
from flows.model.types import Run
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients

_LEAST = 10
"""Entries that are read of an index at a time, at least."""
_PLACE = re.compile(r"([0-9]{1,20})-([0-9]{1,20})/([A-Za-z0-9_-]{1,128})")


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Where an entry stands among those of all indexes."""

    ms: int
    seq: int
    flow_name: str

    @classmethod
    def parse(cls, text: str) -> IndexPlace | None:
        """The place that `str` gave; None for anything else."""
        match = _PLACE.fullmatch(text)
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}/{self.flow_name}"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry: where, and the run that it names; one without an id where it is not ours."""

    place: IndexPlace
    run: Run


@dataclass(slots=True)
class _Index:
    """What was read of one index and is not taken yet, newest first."""

    flow_name: str
    end: str
    """XREVRANGE goes on from here."""
    entries: deque[IndexEntry] = field(default_factory=deque)
    is_read: bool = False
    """Nothing is left to read."""


class RunIndex:
    """One walk over the indexes of some flows, from the newest entry before a place back to the oldest."""

    def __init__(self, clients: RedisClients, flow_names: Sequence[str], before: IndexPlace | None = None) -> None:
        self._clients = clients
        self._indexes = [_Index(name, _end(name, before)) for name in sorted(set(flow_names))]

    async def take(self, count: int) -> list[IndexEntry]:
        """The next entries; fewer than `count` only at the end."""
        taken: list[IndexEntry] = []
        await self._refill(count)
        heap = [(_newest_first(index.entries[0]), at) for at, index in enumerate(self._indexes) if index.entries]
        heapq.heapify(heap)
        while heap and len(taken) < count:
            at = heap[0][1]
            index = self._indexes[at]
            taken.append(index.entries.popleft())
            if not index.entries:
                await self._refill(count - len(taken))
            if index.entries:
                heapq.heapreplace(heap, (_newest_first(index.entries[0]), at))
            else:
                heapq.heappop(heap)
        return taken

    async def _refill(self, wanted: int) -> None:
        """Reads on where an index has nothing left to take: one round trip for all of them."""
        empty = [index for index in self._indexes if not index.entries and not index.is_read]
        if not empty or wanted <= 0:
            return
        count = max(_LEAST, -(-wanted // len(empty)))
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for index in empty:
                batch.execute_command("XREVRANGE", keys.flow_runs(index.flow_name), index.end, "-", "COUNT", count)
            for index, rows in zip(empty, await batch.execute(), strict=True):
                index.is_read = len(rows) < count
                if rows:
                    index.end = f"({rows[-1][0].decode()}"
                index.entries.extend(_entry(index.flow_name, entry) for entry in indexed(rows))


def _entry(flow_name: str, entry: RunEntry) -> IndexEntry:
    return IndexEntry(IndexPlace(*parse_id(entry.id), flow_name), Run(entry.flow_id, flow_name, entry.tenant))


def _end(flow_name: str, before: IndexPlace | None) -> str:
    """Where XREVRANGE begins: entries with the same id go by the names of their flows."""
    if before is None:
        return "+"
    place = f"{before.ms}-{before.seq}"
    return place if flow_name > before.flow_name else f"({place}"


def _newest_first(entry: IndexEntry) -> tuple[int, int, str]:
    return -entry.place.ms, -entry.place.seq, entry.place.flow_name
