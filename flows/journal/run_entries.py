"""Indexes of runs, kept free of what they need not hold: entries of runs that are gone, and duplicates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.index")

PAGE: Final = 500
PAGES: Final = 10
"""Pages of an index in one pass; the next pass goes on behind them."""
_WINDOW: Final = 10_000
"""Entries among which a second one of a run is noticed."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One entry; `flow_id` is empty where it names no run."""

    id: str
    flow_id: str
    tenant: str
    source_id: str

    @property
    def run(self) -> RunKey:
        """The name of the run in keys."""
        return keys.run(self.tenant, self.flow_id)


def indexed(rows: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> list[RunEntry]:
    """The entries of rows of an index."""
    return [_entry(entry_id.decode(), held) for entry_id, held in rows]


def _entry(entry_id: str, held: Mapping[bytes, bytes]) -> RunEntry:
    try:
        data = orjson.loads(held[b"data"])
        return RunEntry(entry_id, str(data["id"]), str(data.get("tenant", "")), str(data["sourceId"]))
    except (KeyError, ValueError, TypeError):
        return RunEntry(entry_id, "", "", "")


class IndexKeeping:
    """Walks the indexes of all flows, page by page, again and again. Raises `UNAVAILABLE`."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        self._places: dict[str, str] = {}
        self._seen: dict[str, OrderedDict[RunKey, RunEntry]] = {}

    async def run(self) -> int:
        """One pass: some pages of each index; how many entries went."""
        names = await self._clients.commands.execute_command("SMEMBERS", keys.FLOW_NAMES)
        removed = 0
        for name in sorted(name.decode() for name in names):
            for _ in range(PAGES):
                removed += await self._page(name)
                if name not in self._places:
                    break
        if removed:
            _log.info("run_index_compacted", removed=removed)
        return removed

    async def _page(self, name: str) -> int:
        """One page of an index; at its end the walk begins anew."""
        stream = keys.flow_runs(name)
        rows = await self._clients.commands.execute_command(
            "XRANGE", stream, self._places.get(name, "-"), "+", "COUNT", PAGE
        )
        entries = indexed(rows)
        # What was indexed while this runs has an order: orders are written before entries are.
        superfluous = await self._gone(entries) | self._duplicates(name, entries)
        if superfluous:
            await self._clients.commands.execute_command("XDEL", stream, *sorted(superfluous))
        if len(rows) < PAGE:
            self._places.pop(name, None)
            self._seen.pop(name, None)
        else:
            self._places[name] = f"({entries[-1].id}"
        return len(superfluous)

    async def _gone(self, entries: Sequence[RunEntry]) -> set[str]:
        """Entries of runs that are not kept any more."""
        if not entries:
            return set()
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for entry in entries:
                batch.execute_command("EXISTS", keys.flow(entry.run))
            replies = await batch.execute()
        return {entry.id for entry, there in zip(entries, replies, strict=True) if not there}

    def _duplicates(self, name: str, entries: Sequence[RunEntry]) -> set[str]:
        """Second entries for the same event; of a run that was started anew, the entry of its life before."""
        seen = self._seen.setdefault(name, OrderedDict())
        found = set()
        for entry in entries:
            before = seen.get(entry.run)
            if before is not None and before.source_id == entry.source_id:
                found.add(entry.id)
                continue
            if before is not None:
                found.add(before.id)
            seen[entry.run] = entry
            if len(seen) > _WINDOW:
                seen.popitem(last=False)
        return found
