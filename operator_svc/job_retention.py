"""What the pruner needs of the indexes beside the records themselves, and which of those it may touch."""

from __future__ import annotations

from collections.abc import Sequence

from fetchbox.config.v1 import config_pb2
from kernel.durations import millis
from kernel.ledger.base import Base
from kernel.log.exported import Exported
from kernel.log.offsets import parse_id
from kernel.log.redis import RedisLog
from kernel.redis import keys
from kernel.redis.clients import RedisClients


class JobRetention(Base):
    """The index of ended jobs, as retention sees it."""

    async def sample_ended(self, count: int) -> list[str]:
        """Up to `count` ended jobs, drawn at random; all of them where there are no more."""
        ids = await self._clients.commands.execute_command("ZRANDMEMBER", keys.ended_index(), count)
        return [job_id.decode() for job_id in ids]

    async def oldest_ended(self, limit: int) -> list[str]:
        """The ended jobs, oldest end first."""
        ids = await self._clients.commands.execute_command("ZRANGE", keys.ended_index(), 0, limit - 1)
        return [job_id.decode() for job_id in ids]

    async def look_again(self, job_id: str) -> None:
        """Puts a job that could not be removed (it was replayed, or ended again) among those that ended just now."""
        now = await self._clients.now_ms()
        await self._clients.commands.execute_command("ZADD", keys.ended_index(), "XX", "GT", now, job_id)


class ExportedJobs:
    """The ended jobs whose last status is in the lake, or that no exporter holds. Raises `UNAVAILABLE`."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._exported = Exported(clients, millis(config.exporter.hold))
        self._log = RedisLog(clients)
        self._streams = [keys.stream(keys.STATUS, part) for part in range(config.streams.status.partitions)]

    async def of(self, job_ids: Sequence[str]) -> list[str]:
        """Those of these ended jobs, in their order."""
        limits = await self._limits()
        if not job_ids or all(limit is None for limit in limits):
            return list(job_ids)
        ends = await self._clients.commands.execute_command("ZMSCORE", keys.ended_index(), *job_ids)
        parts = [limits[keys.partition_of(job_id, len(limits))] for job_id in job_ids]
        return [
            job_id
            for job_id, end, limit in zip(job_ids, ends, parts, strict=True)
            if end is None or limit is None or float(end) < limit
        ]

    async def _limits(self) -> list[int | None]:
        """Of each partition when a job must have ended, in ms; None where all that it was ever given is exported."""
        positions = await self._exported.positions(self._streams)
        limits: list[int | None] = []
        for stream, position in positions.items():
            # Positions first: what comes between the two looks is held, not let go.
            done = position is None or parse_id(position) >= parse_id(await self._log.last(stream))
            limits.append(None if position is None or done else parse_id(position)[0])
        return limits
