"""The events of a job: one stream a job, read from a cursor, so that backfill and live are one read."""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

from kernel.ledger.base import Base
from kernel.redis import keys

_COUNT = 500
"""Events of one job in one answer."""
_STATE = ("status", "updated_ts", "rev")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")
_TIME_DIGITS = 18
"""So many fit an int64."""
_LATEST = 999_999_999_999_999_999


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job."""

    id: str
    """Its place in the stream, `ms-seq`."""
    type: str
    """`queued`, `running`, `progress`, `retry`, `replayed`, what else a handler writes, or the last: `done`, `error`,
    `canceled`."""
    ts: int
    """When, ms since the epoch."""
    step: str
    """Who wrote it."""
    data: bytes
    """JSON, byte for byte; a JSON object unless a worker of others wrote it."""

    @property
    def attempts(self) -> int:
        """How many attempts a job took that is done; 0 where its event does not say."""
        value = orjson.loads(self.data)
        count = value.get("attempts") if isinstance(value, dict) else None
        return count if type(count) is int else 0


class Timeline(Base):
    """Reading events. A key that holds no stream holds none."""

    async def events(self, job_id: str, after: str = "", limit: int = _COUNT) -> list[JobEvent]:
        """Up to `limit` events after an id (empty: from the first), oldest first."""
        rows = await self._one("XRANGE", keys.job_events(job_id), f"({after}" if after else "-", "+", "COUNT", limit)
        return [event_of(*row) for row in rows or ()]

    async def last_events(self, job_id: str, limit: int = 1) -> list[JobEvent]:
        """The newest events, newest first."""
        rows = await self._one("XREVRANGE", keys.job_events(job_id), "+", "-", "COUNT", limit)
        return [event_of(*row) for row in rows or ()]

    async def event_at(self, job_id: str, event_id: str) -> JobEvent | None:
        """The event with this id; None where there is none (any more)."""
        rows = await self._one("XRANGE", keys.job_events(job_id), event_id, event_id)
        return event_of(*rows[0]) if rows else None

    async def state(self, job_id: str) -> tuple[str, str, str] | None:
        """What changes with a record: status, time of its last change, revision; None where there is no record."""
        values = await self._one("HMGET", keys.job(job_id), *_STATE) or (b"", b"", b"")
        status, updated, revision = (_text(value or b"") for value in values)
        return (status, updated, revision) if status or updated or revision else None


def event_of(entry_id: bytes, fields: list[bytes] | dict[bytes, bytes]) -> JobEvent:
    """An entry of the stream, whoever wrote it: what is missing or malformed in it is made harmless.

    A character of the type that would end its line becomes U+FFFD, and data that is no JSON becomes `{"_raw": text}`.
    """
    values = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    place = _text(entry_id)
    return JobEvent(
        place,
        _UNSAFE.sub("\ufffd", _text(values.get(b"type", b""))),
        _time(values.get(b"ts", b""), place),
        _text(values.get(b"step", b"")),
        _json(bytes(values.get(b"data", b""))),
    )


def _time(text: bytes, place: str) -> int:
    """The time of an event, or where it has none that of its entry."""
    if text.isdigit() and len(text) <= _TIME_DIGITS:
        return int(text)
    return min(int(place.partition("-")[0]), _LATEST)


def _json(data: bytes) -> bytes:
    if not data:
        return b"{}"
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.dumps({"_raw": _text(data)})
    return data


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
