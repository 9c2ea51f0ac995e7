"""Processing lists of workers that no registry knows: those of foreign workers, or of ours after it was lost.

The lists are the truth (a worker is only known by what it holds), but finding them means looking at every key of the
server; so it is done slowly, and only to make the reaper acquainted with their workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.redis.clients import RedisClients
from kernel.telemetry.logs import get_logger

ROUND_SECONDS = 30.0
"""The least time from the end of one look at all keys to the begin of the next."""
_BUDGET_SECONDS = 0.05
_COUNT = 500
_SOLO = ".solo"
_log = get_logger(__name__)


class ListAudit:
    """Looks through all keys for processing lists. `run` is one part of that; one at a time."""

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        clock: Clock,
        visit: Callable[[str, float], Awaitable[object]],
    ) -> None:
        """`visit` is the reaper's, which registers a worker that it does not know. It is told when to stop."""
        self._clients = clients
        self._clock = clock
        self._names = ListNames(config.worker)
        self._visit = visit
        self._cursor = 0
        self._next_round = 0.0

    async def run(self) -> None:
        """Goes on where the last run stopped; does nothing between two rounds."""
        if not self._cursor and self._clock.monotonic() < self._next_round:
            return
        ends = self._clock.monotonic() + _BUDGET_SECONDS
        while True:
            await self._one_page(ends)
            if not self._cursor:
                self._next_round = self._clock.monotonic() + ROUND_SECONDS
                return
            if self._clock.monotonic() >= ends:
                return

    async def _one_page(self, ends: float) -> None:
        cursor, found = await self._clients.commands.scan(
            self._cursor, match=self._names.processing_glob, count=_COUNT, _type="list"
        )
        for name in found:
            try:
                worker = self._names.worker_of(_text(name))
            except UnicodeDecodeError:
                _log.warn("list_of_unnamed_worker", key=repr(name))
                continue
            await self._visit(worker.removesuffix(_SOLO), ends)
        self._cursor = int(cursor)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
