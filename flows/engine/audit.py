"""Finds open runs that nobody would look at any more.

Every open run is in the set of due runs, from its order to its end: scripts see to that. Only where somebody has
removed that set, or a restored backup is older than it, may a run be missing there, and it would stand still for good.
So the indexes of runs are walked, newest first, a page a turn, and what is open and missing becomes due at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flows.journal.run_index import IndexEntry, IndexPlace, RunIndex
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.audit")

PAGE: Final = 500
"""Runs of one turn."""
PAGES: Final = 20
"""Pages of a turn that goes on, since it finds what was lost."""


class RunAudit:
    """The walk, which all engines share: each turn is that of one of them. Raises `UNAVAILABLE`."""

    def __init__(self, clients: RedisClients, interval: float) -> None:
        """`interval`: seconds between two turns of all engines together."""
        self._clients = clients
        self._pause_ms = max(1, int(interval * 1000))

    async def turn(self) -> int:
        """How many runs were found."""
        commands = self._clients.commands
        if not await commands.execute_command("SET", keys.FLOWS_AUDIT, "1", "NX", "PX", self._pause_ms):
            return 0
        stood = await commands.execute_command("GET", keys.FLOWS_AUDITED)
        names = await commands.execute_command("SMEMBERS", keys.FLOW_NAMES)
        index = RunIndex(self._clients, [name.decode() for name in names], IndexPlace.parse((stood or b"").decode()))
        found = 0
        for _ in range(PAGES):
            entries = await index.take(PAGE)
            lost = await self._lost(entries)
            await self._recall(lost)
            found += len(lost)
            if len(entries) < PAGE:
                await commands.execute_command("DEL", keys.FLOWS_AUDITED)
                break
            await commands.execute_command("SET", keys.FLOWS_AUDITED, str(entries[-1].place))
            if not lost:
                break
        if found:
            _log.warn("flows_found_again", count=found)
        return found

    async def _lost(self, entries: Sequence[IndexEntry]) -> list[RunKey]:
        runs = sorted({entry.run.key for entry in entries} - {keys.NO_RUN})
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for key in runs:
                # An open run is due before its order is seen here, and stays so until its order says that it has ended.
                batch.execute_command("HMGET", keys.flow(key), "rev", "ended")
                batch.execute_command("ZSCORE", keys.FLOWS_DUE, key)
            # An order may have become something else under somebody's hands: that hides no other.
            replies: list[Any] = await batch.execute(raise_on_error=False) if runs else []
        return [
            key
            for key, head, score in zip(runs, replies[::2], replies[1::2], strict=True)
            if isinstance(head, list) and head[0] is not None and head[1] is None and score is None
        ]

    async def _recall(self, runs: Sequence[RunKey]) -> None:
        """Has them looked at. One that has ended meanwhile is looked at once more, which harms nobody."""
        if not runs:
            return
        now = await self._clients.now_ms()
        due = [part for key in runs for part in (now, key)]
        await self._clients.commands.execute_command("ZADD", keys.FLOWS_DUE, "NX", *due)
