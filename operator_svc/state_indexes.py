"""The indexes by state: built once for the jobs of an older release, and held against the records ever after.

A pass does a bounded amount of work and notes how far it has come, so that whoever runs the next one, in this process
or another, goes on from there. Once all is built a pass looks at jobs that have not ended: workers of others move those
by writing the record alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.ledger.base import Base
from kernel.ledger.listing import BUILT
from kernel.ledger.records import pairs
from kernel.ledger.state_index import walk
from kernel.redis import keys, scripts

_BATCH = 200
"""Jobs that one script looks at."""
_BATCHES = 50
"""Batches of one pass that builds."""
_CHECKED = 5
"""Batches of one pass that checks."""
_OPEN = ("queued", "running")


class StateIndexes(Base):
    """Builds and checks the indexes. Raises `UNAVAILABLE`; passes of several processes do not harm each other."""

    _place: tuple[int, str] = (0, "")

    async def run(self) -> int:
        """One pass; how many jobs were looked at."""
        done = await self._one("GET", keys.STATES_BUILT)
        return await self._check() if done == BUILT else await self._build(int(done or 0))

    async def _build(self, since: int | str) -> int:
        """Enters the jobs that were accepted from a time on, in ms, the oldest first."""
        looked, count = 0, _BATCH
        while looked < _BATCH * _BATCHES:
            rows = await self._clients.commands.execute_command(
                "ZRANGEBYSCORE", keys.job_index(), since, "+inf", "WITHSCORES", "LIMIT", 0, count
            )
            found = pairs(rows)
            if len(found) == count and found[-1][1] == since:  # there are more of this millisecond
                count *= 2
                continue
            await self._relist([job_id for job_id, _ in found])
            looked += len(found)
            is_last = len(found) < count
            since, count = (BUILT.decode() if is_last else found[-1][1]), _BATCH
            await self._clients.commands.execute_command("SET", keys.STATES_BUILT, since)
            if is_last:
                break
        return looked

    async def _check(self) -> int:
        """Looks at open jobs, some more with each pass, and from the oldest again after the last."""
        looked = 0
        state, place = self._place
        while looked < _BATCH * _CHECKED and state < len(_OPEN):
            found, place = await walk(self._clients, _OPEN[state], place, _BATCH)
            await self._relist(found)
            looked += len(found)
            state += not place
        self._place = (state, place) if state < len(_OPEN) else (0, "")
        return looked

    async def _relist(self, job_ids: Sequence[str]) -> None:
        if job_ids:
            await self._clients.call(scripts.RELIST, [keys.STATES], [keys.job(job_id) for job_id in job_ids])
