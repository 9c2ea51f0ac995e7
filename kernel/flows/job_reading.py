"""Reads the jobs of attempts: their records, all in one round trip, and what a manifest's job resulted in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import orjson

from fetchbox.config.v1.config_pb2 import Config
from kernel import keys, places
from kernel.flows import values
from kernel.flows.job_facts import ENDED, UNMADE, JobFacts, JobStatus
from kernel.lanes.link import Link
from kernel.ledger.record import FIELDS, JobRecord, error_of, from_hash, wait_of
from kernel.objects import ObjectStore
from kernel.redis import is_other_kind

_TASK: Final = (b"status", b"created_ts", b"error", b"result")
_ROOM: Final = 512
"""Bytes of a result beside its resources, and of its event beside the result."""
_STATUS: Final[dict[str, JobStatus]] = {word: word for word in get_args(JobStatus)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt whose job may exist."""

    flow_id: str
    run_id: str
    job_id: str
    is_fetch: bool
    """Its job is that of a manifest."""


class JobReader:
    """Reads jobs. Raises `UNAVAILABLE` where Redis or the object store does not answer."""

    def __init__(self, link: Link, objects: ObjectStore, config: Config) -> None:
        self._link = link
        self._objects = objects
        self._bucket = config.object_store.bucket
        self._max_event_bytes = config.flow_engine.max_event_bytes

    async def read(self, attempts: Sequence[Attempt]) -> list[JobFacts | JobRecord]:
        """What is known of each; of a manifest's job that has stored resources the record: `concluded` reads on."""
        if not attempts:
            return []
        replies = await self._link.run(
            [("HMGET", keys.job(attempt.job_id), *(FIELDS if attempt.is_fetch else _TASK)) for attempt in attempts]
        )
        return [self._facts(attempt, reply) for attempt, reply in zip(attempts, replies, strict=True)]

    async def concluded(self, record: JobRecord) -> JobFacts:
        """The end of a manifest's job with its result: counts, keys, and the resources if they fit into an event."""
        result: dict[str, Any] = {
            "jobId": record.job_id,
            "status": record.status,
            "completed": record.resource_completed,
            "failed": record.resource_failed,
            "total": record.resource_total,
            "manifestKey": record.manifest_key,
            "resultsKey": record.results_key,
        }
        body = await self._objects.get(self._bucket, places.results(record.job_type, record.job_id)) or b""
        lines = [orjson.loads(line) for line in body.splitlines()]
        resources = [{"id": line["resource_id"], "key": line["key"]} for line in lines if line["state"] == "stored"]
        whole = orjson.dumps(result | {"resources": resources})
        fits = len(whole) <= self._max_event_bytes - 2 * _ROOM
        return _fetch_facts(record, whole if fits else orjson.dumps(result))

    def _facts(self, attempt: Attempt, reply: Any) -> JobFacts | JobRecord:
        if isinstance(reply, Exception):
            if is_other_kind(reply):  # the key is somebody else's: there is no record
                return UNMADE
            raise reply
        return self._of_fetch(attempt, reply) if attempt.is_fetch else _of_task(attempt, reply)

    def _of_fetch(self, attempt: Attempt, values: Sequence[bytes | None]) -> JobFacts | JobRecord:
        found = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
        if not found:
            return UNMADE
        record = from_hash({**found, b"job_id": attempt.job_id.encode()}, self._bucket)
        return record if record.status in ("done", "partial") else _fetch_facts(record, None)


def _of_task(attempt: Attempt, values: Sequence[bytes | None]) -> JobFacts:
    status, created, error, result = values
    if status is None:
        return UNMADE
    word = _STATUS.get(status.decode(errors="replace"), "running")  # a word that is not known is no end
    why = error or b"" if word in ENDED else b""
    code, message = error_of(why)
    made = int(created) if created is not None and created.isdigit() else 0
    given = _json(result) if word == "done" else None
    return JobFacts(word, attempt.job_id, made, given, code, message, wait_of(why))


def _fetch_facts(record: JobRecord, result: bytes | None) -> JobFacts:
    word = _STATUS.get(record.status, "running")
    return JobFacts(word, record.job_id, record.created_ms, result, record.error_code, record.error_message)


def _json(text: bytes | None) -> bytes | None:
    """The result of a task; what a worker of others wrote that is no JSON is a text."""
    if not text:
        return None
    try:
        values.load(text)
    except ValueError:
        return orjson.dumps(text.decode(errors="replace"))
    return text
