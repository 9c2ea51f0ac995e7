"""The record of one job as a whole: payload, result and error as JSON, whoever wrote them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import orjson

from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.ledger.base import Base
from kernel.ledger.record import FETCH, FIELDS, JobRecord, from_hash
from kernel.redis import keys

_TEXTS = (b"payload", b"result")
_NUMBER_DIGITS = 7
"""What others wrote may be no number that fits."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One job, its JSON fields as bytes of valid JSON; empty where there is none."""

    record: JobRecord
    payload: bytes = b""
    """What was submitted, byte for byte. Another's text that is no JSON is `{"_raw": text}`; empty for a manifest's."""
    result: bytes = b""
    """What the handler returned; another's text that is no JSON is a JSON string."""
    error: bytes = b""
    """Why it failed; another's text that is no JSON is a JSON string."""


class TaskRecords(Base):
    """Reading whole records, one at a time: a payload or a result may be large."""

    async def task(self, job_id: str) -> TaskRecord | None:
        """The whole record; None where there is none (any more)."""
        fields = (*FIELDS, *_TEXTS)
        reply = await self._one("HMGET", keys.job(job_id), *fields) or ()
        values = {name: value for name, value in zip(fields, reply, strict=False) if value is not None}
        if not values:
            return None
        record = from_hash({**values, b"job_id": job_id.encode()}, self._config.object_store.bucket)
        payload = b"" if record.task == FETCH else values.get(b"payload", b"")
        return TaskRecord(
            record,
            payload=payload if not payload or is_json(payload) else _raw(payload),
            result=json_value(values.get(b"result", b"")),
            error=json_value(record.error),
        )

    async def queued_task(self, job_id: str) -> QueuedTask | None:
        """The task of a job as its entry of the queue carries it; None where there is no record (any more)."""
        fields = ("task", "payload", "tenant", "trace_id", "ttl_s", "flow", "replays")
        reply = await self._one("HMGET", keys.job(job_id), *fields) or ()
        values = {name: value for name, value in zip(fields, reply, strict=False) if value is not None}
        if not values:
            return None
        task = QueuedTask(job_id=job_id, payload=values.get("payload", b""))
        for name in ("task", "tenant", "trace_id", "flow"):
            setattr(task, name, values.get(name, b"").decode(errors="replace"))
        for name, field in (("ttl_s", "ttl_s"), ("replays", "replay")):
            value = values.get(name, b"")
            if value.isdigit() and len(value) <= _NUMBER_DIGITS:
                setattr(task, field, int(value))
        return task


def json_value(text: bytes) -> bytes:
    """The text if it is JSON or empty, else a JSON string with it."""
    return text if not text or is_json(text) else orjson.dumps(text.decode(errors="replace"))


def is_json(text: bytes) -> bool:
    """Whether it is JSON (RFC 8259) in UTF-8."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return _is_unusual_json(text)
    return True


def _is_unusual_json(text: bytes) -> bool:
    """JSON that orjson does not take: escapes of lone surrogates, and deeper nesting than it knows."""
    try:
        json.loads(text.decode(), parse_constant=_refuse, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _raw(text: bytes) -> bytes:
    return orjson.dumps({"_raw": text.decode(errors="replace")})
