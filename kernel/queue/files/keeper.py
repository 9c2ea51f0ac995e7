"""The lists that only grow, completed jobs and dead letters, are kept short: by count and by age."""

from __future__ import annotations

from fetchbox.config.v1 import config_pb2
from kernel.durations import millis
from kernel.queue.files.names import ListNames
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients, is_other_kind
from kernel.telemetry.logs import get_logger

BATCH = 500
"""The most entries that one run of the script removes."""
_MOST_RUNS = 200
_log = get_logger(__name__)


class ListKeeper:
    """Enforces `worker.completed_keep` and `worker.dead_letter_keep`. `run` is one round."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        names = ListNames(config.worker)
        self._clients = clients
        self._lists = {
            names.completed: config.worker.completed_keep,
            names.dead_letters: config.worker.dead_letter_keep,
        }

    async def run(self) -> int:
        """Removes what is too much or too old, at most 100,000 entries a list. Returns how many."""
        return sum([await self._retain(name, keep) for name, keep in self._lists.items()])

    async def _retain(self, name: str, keep: config_pb2.ListRetention) -> int:
        removed, more, runs = 0, 1, 0
        try:
            while more and runs < _MOST_RUNS:
                runs += 1
                count, more = await self._clients.call(
                    scripts.FILE_RETAIN, [name, keys.file_marks(name)], [keep.max_count, millis(keep.max_age), BATCH]
                )
                removed += count
        except Exception as error:
            if not is_other_kind(error):
                raise
            _log.warn("list_is_none", key=name, error=str(error))
        if removed:
            _log.info("list_trimmed", key=name, removed=removed)
        return removed
