"""Whether there is room for more work: a full backlog is 503 at the door, never a dropped task."""

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError
from kernel.log.backlog import Backlogs
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry.logs import get_logger

log = get_logger("ingest.room")

_COME_AGAIN = 5.0


class Room:
    """Looks at `jobs.tasks` from time to time and remembers whether a partition is full of unsettled work.

    Each partition has its share of the topic's size cap. Settled entries do not count: retention removes those.
    """

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self._clients = clients
        self._backlogs = Backlogs(clients, config)
        stream = config.streams.tasks
        self._share = stream.max_bytes // stream.partitions
        self._partitions = range(stream.partitions)
        self._full: list[int] = []

    def require(self) -> None:
        """Raises `UNAVAILABLE` while a partition is full."""
        if self._full:
            raise FetchboxError(
                errors_pb2.REASON_UNAVAILABLE,
                "the backlog is full; nothing of this submit was kept, so submit it again later",
                retry_after=_COME_AGAIN,
            )

    async def measure(self) -> None:
        """Looks at every partition; those that are large are looked at closely."""
        sizes = await self._sizes()
        large = {partition: size for partition, size in sizes.items() if size >= self._share}
        full = await self._unsettled(large) if large else []
        if full and not self._full:
            log.warn("backlog_full", partitions=len(full))
        self._full = full

    async def _sizes(self) -> dict[int, int]:
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for partition in self._partitions:
                batch.memory_usage(keys.stream(keys.TASKS, partition))
            return {
                partition: size or 0 for partition, size in zip(self._partitions, await batch.execute(), strict=True)
            }

    async def _unsettled(self, large: dict[int, int]) -> list[int]:
        return [
            backlog.partition
            for backlog in await self._backlogs.read()
            if backlog.topic == keys.TASKS
            and backlog.partition in large
            and large[backlog.partition] * (backlog.pending + backlog.waiting) >= self._share * max(1, backlog.length)
        ]
