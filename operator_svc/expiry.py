"""Records that expire by themselves: the indexes over jobs are told when one has gone.

A task job's record ends with its TTL, and Redis tells nobody. So an index says of each when to look. A record that is
there is looked at again when its TTL ends, or later where none runs yet; one that is gone is taken out of the indexes.
An operator's replay may make it again at the same time. It does so before it enters the job in the indexes, and with
another score: so the job is taken out of the listing first, then the record is looked at again, and the place in the
index of expiring records is given up last, and only as it was read. Whoever dies in between leaves it to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.ledger.base import TERMINAL, Base, delete_keys
from kernel.ledger.records import pairs
from kernel.redis import keys, scripts

_GONE = -2
_ENDLESS = -1
LATER_MS = 300_000
"""When to look again at a record whose TTL does not run: its job waits or works."""


class Expiry(Base):
    """The index of expiring records."""

    async def sweep(self, limit: int) -> tuple[int, int]:
        """Looks at up to `limit` jobs that are due: how many there were, and how many of them were forgotten."""
        now = await self._clients.now_ms()
        due = await self._due(now, limit)
        facts = await self._many([("PTTL", keys.job(job_id)) for job_id in due])
        ttls = {job_id: ttl for job_id, ttl in zip(due, facts, strict=True) if isinstance(ttl, int)}
        await self._start([job_id for job_id, ttl in ttls.items() if ttl == _ENDLESS])
        await self._look_again(
            {job_id: now + (ttl + 1 if ttl >= 0 else LATER_MS) for job_id, ttl in ttls.items() if ttl != _GONE}
        )
        gone = {job_id: due[job_id] for job_id, ttl in ttls.items() if ttl == _GONE}
        return len(due), await self._forget(gone) if gone else 0

    async def _due(self, now: int, limit: int) -> dict[str, int]:
        rows = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.expiring_index(), "-inf", now, "WITHSCORES", "LIMIT", 0, limit
        )
        return dict(pairs(rows))

    async def _start(self, endless: Sequence[str]) -> None:
        """Lets the time of those run that have ended: a worker of another may have died before, or not care."""
        found = await self._many([("HGET", keys.job(job_id), "status") for job_id in endless]) if endless else []
        for job_id, status in zip(endless, found, strict=True):
            if isinstance(status, bytes) and status.decode(errors="replace") in TERMINAL:
                names = [keys.job(job_id), keys.job_events(job_id)]
                await self._clients.call(scripts.EXPIRE, names, [self._config.tasks.job_ttl_s])

    async def _look_again(self, times: dict[str, int]) -> None:
        if times:
            scores = [part for job_id, at in times.items() for part in (at, job_id)]
            await self._clients.commands.execute_command("ZADD", keys.expiring_index(), "XX", *scores)

    async def _forget(self, gone: dict[str, int]) -> int:
        names = list(gone)
        for orphan in await self._orphans(names):
            # Removes what a late writer left beside a record that is gone, and nothing of one that is back.
            await self._clients.call(scripts.DELETE, delete_keys(orphan), [0])
        indexes = (keys.job_index(), keys.ended_index(), keys.open_index())
        replies = await self._many(
            [*(("ZREM", index, *names) for index in indexes), *(("EXISTS", keys.job(job_id)) for job_id in names)]
        )
        back = [job_id for job_id, there in zip(names, replies[len(indexes) :], strict=True) if there]
        # With their states as well: a replay may have made the record again since.
        await self._clients.call(scripts.RELIST, [keys.STATES], [keys.job(job_id) for job_id in names])
        await self._relist(back)
        forgotten = [part for job_id in names if job_id not in back for part in (gone[job_id], job_id)]
        return int(await self._clients.call(scripts.UNINDEX, [keys.expiring_index()], forgotten)) if forgotten else 0

    async def _orphans(self, job_ids: Sequence[str]) -> list[str]:
        found = await self._many([("EXISTS", keys.job_events(job_id)) for job_id in job_ids])
        return [job_id for job_id, there in zip(job_ids, found, strict=True) if there]

    async def _relist(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            created = await self._one("HGET", keys.job(job_id), "created_ts")
            if created is not None and created.isdigit():
                await self._clients.call(scripts.INDEX, [keys.job_index()], ["NX", created, job_id])
