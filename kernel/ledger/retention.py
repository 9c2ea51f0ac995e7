"""What the pruner needs of the indexes beside the records themselves."""

from __future__ import annotations

from kernel import keys
from kernel.ledger.base import Base


class Retention(Base):
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
