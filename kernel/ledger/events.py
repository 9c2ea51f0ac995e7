"""The events of a job: one stream a job, read from a cursor, so that backfill and live are one read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel import keys
from kernel.ledger.base import Base

_COUNT = 500
"""Events of one job in one answer."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job."""

    id: str
    """Its place in the stream, `ms-seq`."""
    type: str
    """`queued`, `running`, `progress`, `retry`, `replayed`, or the last: `done`, `error`, `canceled`."""
    ts: int
    """When, ms since the epoch."""
    step: str
    """Who wrote it."""
    data: bytes
    """A JSON object, byte for byte."""


class Timeline(Base):
    """Reading events."""

    async def events(self, job_id: str, after: str = "", limit: int = _COUNT) -> list[JobEvent]:
        """Up to `limit` events after an id (empty: from the first), oldest first."""
        rows = await self._clients.commands.execute_command(
            "XRANGE", keys.job_events(job_id), f"({after}" if after else "-", "+", "COUNT", limit
        )
        return [_event(row) for row in rows]

    async def last_events(self, job_id: str, limit: int = 1) -> list[JobEvent]:
        """The newest events, newest first."""
        rows = await self._clients.commands.execute_command(
            "XREVRANGE", keys.job_events(job_id), "+", "-", "COUNT", limit
        )
        return [_event(row) for row in rows]

    async def wait_events(self, cursors: Mapping[str, str], block_ms: int) -> dict[str, list[JobEvent]]:
        """The events after each job's cursor (empty: from the first), by job id: one read for all the jobs.

        Waits up to `block_ms` (at most 30,000) for the first; an empty answer means that nothing came.
        """
        if not cursors:
            return {}
        jobs = {keys.job_events(job_id): job_id for job_id in cursors}
        reply = await self._clients.blocking.execute_command(
            "XREAD",
            "COUNT",
            _COUNT,
            "BLOCK",
            max(1, block_ms),
            "STREAMS",
            *jobs,
            *(at or "0" for at in cursors.values()),
        )
        streams = reply.items() if isinstance(reply, dict) else reply or []
        return {jobs[_text(name)]: [_event(row) for row in _rows(rows)] for name, rows in streams}


def _rows(rows: list[Any]) -> list[Any]:
    """Entries of one stream; some reply shapes nest them once more."""
    nested = rows and isinstance(rows[0], list) and rows[0] and isinstance(rows[0][0], list | tuple)
    return [entry for part in rows for entry in part] if nested else rows


def _event(row: tuple[Any, Any]) -> JobEvent:
    entry_id, fields = row
    values = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    return JobEvent(
        _text(entry_id),
        _text(values.get(b"type", b"")),
        int(values.get(b"ts") or 0),
        _text(values.get(b"step", b"")),
        bytes(values.get(b"data", b"{}")),
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
