"""Reading records: one, many, and all. What an index names in vain is skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from kernel.ledger.base import Base
from kernel.ledger.record import FIELDS, JobRecord, from_hash
from kernel.redis import keys

_SCAN = 200
"""Records read in one round trip."""


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
