"""Ends, and replays, that are still to be published: what the scripts note, and what follows a note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel.ledger.base import TERMINAL
from kernel.ledger.record import FETCH
from kernel.ledger.records import Records
from kernel.redis import keys, scripts


class Ends(Records):
    """The notes. A note is forgotten only as it was read: the job may have ended again meanwhile."""

    async def notes(self, job_ids: Sequence[str]) -> dict[str, int]:
        """Those of the jobs whose end is still to be published, and when they ended, in ms."""
        if not job_ids:
            return {}
        scores = await self._clients.commands.execute_command("ZMSCORE", keys.UNPUBLISHED, *job_ids)
        return {job_id: int(float(at)) for job_id, at in zip(job_ids, scores, strict=True) if at is not None}

    async def late_notes(self, older_than_ms: int, limit: int) -> list[str]:
        """Jobs whose end has waited at least so long, the oldest first."""
        until = await self._clients.now_ms() - older_than_ms
        found = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.UNPUBLISHED, "-inf", until, "LIMIT", 0, limit
        )
        return [job_id.decode() for job_id in found]

    async def forget_notes(self, notes: Mapping[str, int]) -> None:
        """The ends are published."""
        if notes:
            args = [part for job_id, at in notes.items() for part in (at, job_id)]
            await self._clients.call(scripts.UNINDEX, [keys.UNPUBLISHED], args)

    async def repair_ends(self, job_ids: Sequence[str]) -> None:
        """Does what whoever ended these fetch jobs did not get to: retention finds them, and a finalizer if need be."""
        for record in await self.get_many(job_ids):
            if record is None or record.task != FETCH or record.status not in TERMINAL:
                continue
            await self._ended(record.job_id, record.updated_ms)
            if record.status == "canceled":
                finals = keys.finals(self._lane_of(record.job_id))
                await self._clients.call(scripts.INDEX, [finals], ["NX", record.updated_ms, record.job_id])
