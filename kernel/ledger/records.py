"""Reading records: one, many, and page by page. What an index names in vain is skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from kernel import keys
from kernel.ledger.base import Base
from kernel.ledger.record import FIELDS, JobRecord, from_hash

_SCAN = 200
"""Records read in one round trip."""
_ROUNDS = 25
"""Rounds of one page: a page over a long index with a rare filter ends early, with a cursor to go on from."""


class Records(Base):
    """The reading side."""

    async def get(self, job_id: str) -> JobRecord | None:
        """The record; None where there is none (any more)."""
        return (await self.get_many([job_id]))[0]

    async def get_many(self, job_ids: Sequence[str]) -> list[JobRecord | None]:
        """One record, or None, for each id."""
        if not job_ids:
            return []
        bucket = self._config.object_store.bucket
        found = await self._many([("HMGET", keys.job(job_id), *FIELDS) for job_id in job_ids])
        return [
            from_hash({**record, b"job_id": job_id.encode()}, bucket) if (record := _mapping(values)) else None
            for job_id, values in zip(job_ids, found, strict=True)
        ]

    async def page(
        self, limit: int, before: str = "", *, status: str = "", job_type: str = "", tenant: str = "", task: str = ""
    ) -> tuple[list[JobRecord], str]:
        """Up to `limit` records that match, newest first, and the cursor of the next page (empty: none left)."""
        taken: list[JobRecord] = []
        cursor = before
        for _ in range(_ROUNDS):
            ids, following = await self._index(cursor, min(_SCAN, max(limit, 1)))
            for cursor, record in zip(ids, await self.get_many([_id(mark) for mark in ids]), strict=True):
                if record is None or not _matches(record, status, job_type, tenant, task):
                    continue
                taken.append(record)
                if len(taken) == limit:
                    return taken, cursor if following or cursor != ids[-1] else ""
            if not following:
                return taken, ""
        return taken, cursor

    async def all(self) -> AsyncIterator[JobRecord]:
        """Every record, oldest first; those that come or go meanwhile may be missed."""
        after, skip = "-inf", 0
        while True:
            rows = await self._clients.commands.execute_command(
                "ZRANGEBYSCORE", keys.job_index(), after, "+inf", "WITHSCORES", "LIMIT", skip, _SCAN
            )
            found = pairs(rows)
            for record in await self.get_many([job_id for job_id, _ in found]):
                if record is not None:
                    yield record
            if len(found) < _SCAN:
                return
            last = found[-1][1]
            same = sum(1 for _, score in found if score == last)
            skip = skip + same if after == str(last) else same
            after = str(last)

    async def ended_before(self, ms: int, limit: int) -> list[str]:
        """Jobs that ended before a time in ms, oldest first."""
        ids = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.ended_index(), "-inf", f"({ms}", "LIMIT", 0, limit
        )
        return [job_id.decode() for job_id in ids]

    async def counts(self) -> tuple[int, int]:
        """How many jobs there are, and how many of them have ended."""
        found = await self._many([("ZCARD", keys.job_index()), ("ZCARD", keys.ended_index())])
        jobs, ended = (count if isinstance(count, int) else 0 for count in found)
        return jobs, ended

    async def size(self, job_id: str) -> int:
        """The bytes that a job takes in Redis, all its keys."""
        names = (keys.job, keys.job_events, keys.job_bits, keys.job_resources, keys.job_results)
        found = await self._many([("MEMORY", "USAGE", name(job_id), "SAMPLES", 0) for name in names])
        return sum(count for count in found if isinstance(count, int))

    async def _index(self, cursor: str, count: int) -> tuple[list[str], bool]:
        """Marks (`ms/job id`) older than the cursor, newest first, and whether more follow."""
        score, _, member = cursor.partition("/")
        marks: list[str] = []
        offset = 0
        while len(marks) < count:
            rows = await self._clients.commands.execute_command(
                "ZREVRANGEBYSCORE", keys.job_index(), score or "+inf", "-inf", "WITHSCORES", "LIMIT", offset, count + 1
            )
            found = pairs(rows)
            marks += [f"{at}/{job_id}" for job_id, at in found if not cursor or str(at) != score or job_id < member]
            if len(found) <= count:
                return marks[:count], len(marks) > count
            offset += len(found)
        return marks[:count], True


def _id(mark: str) -> str:
    return mark.partition("/")[2]


def pairs(rows: list[Any]) -> list[tuple[str, int]]:
    """`(member, score)` of a reply WITHSCORES, flat or in pairs."""
    flat = [part for row in rows for part in row] if rows and isinstance(rows[0], list | tuple) else rows
    return [(_text(flat[i]), int(float(_text(flat[i + 1])))) for i in range(0, len(flat), 2)]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _mapping(values: object) -> dict[bytes, bytes]:
    if not isinstance(values, list):  # what is there is no record
        return {}
    return {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}


def _matches(record: JobRecord, status: str, job_type: str, tenant: str, task: str) -> bool:
    return (
        (not status or record.status == status)
        and (not job_type or record.job_type == job_type)
        and (not tenant or record.tenant == tenant)
        and (not task or record.task == task)
    )
