"""Listings: pages of jobs, newest first, and how many jobs there are in each state.

An index by state, of all jobs and of those of each tenant, is kept by the scripts that move a job (`state_index.py`).
A page is read from the part that its filters name, and is full unless it is the last one. Until the jobs of an older
release have been entered there (`states.py`), pages come from the index of all jobs, whose records are looked at one by
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernel.ledger.record import JobRecord
from kernel.ledger.records import Records, pairs
from kernel.ledger.state_index import STATES, bounds, index_of
from kernel.redis import keys, scripts

BUILT = b"all"
_LEAST = 50
_SCAN = 1000
"""The fewest and the most records that are looked at in one round trip."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an index: the jobs with these scores. The time of a job is its score above that of the part."""

    index: str
    least: int
    most: int

    def marks(self, rows: list[Any]) -> list[str]:
        """`ms/job id` for each row."""
        return [f"{score - self.least}/{job_id}" for job_id, score in pairs(rows)]


ALL = Part(keys.job_index(), 0, (1 << 53))


@dataclass(frozen=True, slots=True)
class WantedJobs:
    """What a listing shows; an empty field is no filter."""

    status: str = ""
    job_type: str = ""
    tenant: str = ""
    task: str = ""

    def matches(self, record: JobRecord) -> bool:
        """Whether a job is shown."""
        return (
            self.status in ("", record.status)
            and self.job_type in ("", record.job_type)
            and self.tenant in ("", record.tenant)
            and self.task in ("", record.task)
        )

    def misses(self, record: JobRecord | None) -> bool:
        """Whether an index of these jobs named one in vain."""
        return record is None or self.status not in ("", record.status) or self.tenant not in ("", record.tenant)

    def parts(self) -> list[Part]:
        """Where such jobs are found once the indexes by state are built; other filters are asked of the records."""
        if not self.status and not self.tenant:
            return [ALL]
        name = index_of(self.tenant)
        return [Part(name, *bounds(state)) for state in ([self.status] if self.status else STATES)]


class Listing(Records):
    """Pages of records."""

    _built = False

    async def page(
        self, limit: int, before: str = "", *, status: str = "", job_type: str = "", tenant: str = "", task: str = ""
    ) -> tuple[list[JobRecord], str]:
        """Up to `limit` records that match, newest first, and the cursor of the next page (empty: none left)."""
        wanted = WantedJobs(status, job_type, tenant, task)
        parts = wanted.parts() if await self._are_built() else [ALL]
        taken: list[JobRecord] = []
        cursor, looked = before, min(max(limit, _LEAST), _SCAN)
        while True:
            marks, more = await self._merged(parts, cursor, looked)
            records = await self.get_many([_id(mark) for mark in marks])
            await self._relist([_id(mark) for mark, one in zip(marks, records, strict=True) if wanted.misses(one)])
            for cursor, record in zip(marks, records, strict=True):
                if record is None or not wanted.matches(record):
                    continue
                taken.append(record)
                if len(taken) == limit:
                    return taken, cursor if more or cursor != marks[-1] else ""
            if not more:
                return taken, ""
            looked = min(looked * 2, _SCAN)

    async def counts_by_state(self, tenant: str = "") -> dict[str, int] | None:
        """How many jobs there are in each state, of one tenant or of all; None while that is not known yet."""
        if not await self._are_built():
            return None
        found = await self._many([("ZCOUNT", index_of(tenant), *bounds(state)) for state in STATES])
        return {state: count if isinstance(count, int) else 0 for state, count in zip(STATES, found, strict=True)}

    async def _are_built(self) -> bool:
        """Whether the indexes by state hold every job. It stays so: the scripts enter what comes after."""
        if not self._built:
            self._built = await self._one("GET", keys.STATES_BUILT) == BUILT
        return self._built

    async def _relist(self, job_ids: Sequence[str]) -> None:
        """Jobs that are not what their index says: they have moved since it was read, or somebody else moved them."""
        if job_ids and self._built:
            await self._clients.call(scripts.RELIST, [keys.STATES], [keys.job(job_id) for job_id in job_ids])

    async def _merged(self, parts: Sequence[Part], cursor: str, count: int) -> tuple[list[str], bool]:
        """Marks (`ms/job id`) of several parts older than the cursor, newest first, and whether more follow."""
        found = [await self._marks(part, cursor, count) for part in parts]
        if len(found) == 1:
            return found[0]
        # A job that moves between two looks is in both.
        marks = sorted({mark for some, _ in found for mark in some}, key=_order, reverse=True)
        return marks[:count], len(marks) > count or any(more for _, more in found)

    async def _marks(self, part: Part, cursor: str, count: int) -> tuple[list[str], bool]:
        at, _, member = cursor.partition("/")
        most = min(part.most, part.least + int(at)) if at else part.most
        marks: list[str] = []
        offset = 0
        while len(marks) < count:
            rows = await self._clients.commands.execute_command(
                "ZREVRANGEBYSCORE", part.index, most, part.least, "WITHSCORES", "LIMIT", offset, count + 1
            )
            found = part.marks(rows)
            marks += [mark for mark in found if not cursor or mark.partition("/")[0] != at or _id(mark) < member]
            if len(found) <= count:
                return marks[:count], len(marks) > count
            offset += len(found)
        return marks[:count], True


def _id(mark: str) -> str:
    return mark.partition("/")[2]


def _order(mark: str) -> tuple[int, str]:
    at, _, job_id = mark.partition("/")
    return int(at), job_id
