"""Reads the jobs of attempts: their records, all in one round trip, and what a fetch job resulted in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

import orjson

from fetchbox.config.v1.config_pb2 import Config
from flows.engine.job_facts import ENDED, UNMADE, JobFacts, JobStatus
from flows.model import values
from kernel import places
from kernel.ledger.record import FIELDS, JobRecord, error_of, from_hash, wait_of
from kernel.objects import ObjectStore
from kernel.redis import keys
from kernel.redis.clients import is_other_kind
from kernel.redis.keys import RunKey
from kernel.redis.link import Link, is_error
from kernel.redis.pipe import Command

_TASK: Final = (b"status", b"created_ts", b"error", b"result")
_ROOM: Final = 512
"""Bytes of a result beside its resources, and of its event beside the result."""
_STATUS: Final[dict[str, JobStatus]] = {word: word for word in get_args(JobStatus)}


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """An attempt whose job may exist."""

    run: RunKey
    run_id: str
    job_id: str
    """Empty: not known."""
    is_fetch: bool
    """Its job is that of a manifest."""
    submit: str = ""
    """The Redis key of the submit that may have made it; without one, a job without an id is not looked for."""
    is_made: bool = True
    """Whether ingest has done with the submit, so that a record that is not there will not come any more."""


class JobReader:
    """Reads jobs. Raises `UNAVAILABLE` where Redis or the object store does not answer."""

    def __init__(self, link: Link, objects: ObjectStore, config: Config) -> None:
        self._link = link
        self._objects = objects
        self._bucket = config.object_store.bucket
        self._max_event_bytes = config.flow_engine.max_event_bytes

    async def read(self, attempts: Sequence[JobAttempt]) -> list[JobFacts | JobRecord]:
        """What is known of each; of a fetch job that has stored resources the record: `concluded` reads on."""
        named = await self._named(attempts)
        commands: list[Command] = [
            ("HMGET", keys.job(attempt.job_id), *(FIELDS if attempt.is_fetch else _TASK))
            for attempt in named
            if attempt.job_id
        ]
        replies = iter(await self._link.run(commands) if commands else ())
        return [self._facts(attempt, next(replies)) if attempt.job_id else UNMADE for attempt in named]

    async def _named(self, attempts: Sequence[JobAttempt]) -> Sequence[JobAttempt]:
        """The same, those with a submit with the job that it was given."""
        sought = [attempt for attempt in attempts if attempt.submit]
        if not sought:
            return attempts
        replies = await self._link.run([("HMGET", attempt.submit, "job_id", "answer") for attempt in sought])
        found = {}
        for attempt, reply in zip(sought, replies, strict=True):
            if not is_error(reply) and reply[0] is not None:
                job_id = reply[0].decode(errors="replace")
                found[attempt.run_id] = replace(attempt, job_id=job_id, is_made=reply[1] is not None)
        return [found.get(attempt.run_id, attempt) for attempt in attempts]

    async def concluded(self, record: JobRecord) -> JobFacts:
        """The end of a fetch job with its result: counts, keys, and the resources if they fit into an event."""
        result: dict[str, Any] = {
            "jobId": record.job_id,
            "status": record.status,
            "completed": record.resource_completed,
            "failed": record.resource_failed,
            "total": record.resource_total,
            "manifestKey": record.manifest_key,
            "resultsKey": record.results_key,
        }
        place = places.results(record.job_type, record.job_id)
        body = await self._objects.get(record.bucket or self._bucket, place) or b""
        lines = [orjson.loads(line) for line in body.splitlines()]
        resources = [{"id": line["resource_id"], "key": line["key"]} for line in lines if line["state"] == "stored"]
        whole = orjson.dumps(result | {"resources": resources})
        fits = len(whole) <= self._max_event_bytes - 2 * _ROOM
        return _fetch_facts(record, whole if fits else orjson.dumps(result))

    def _facts(self, attempt: JobAttempt, reply: Any) -> JobFacts | JobRecord:
        if isinstance(reply, Exception):
            if is_other_kind(reply):  # the key is somebody else's: there is no record
                return UNMADE
            raise reply
        return self._of_fetch(attempt, reply) if attempt.is_fetch else _of_task(attempt, reply)

    def _of_fetch(self, attempt: JobAttempt, values: Sequence[bytes | None]) -> JobFacts | JobRecord:
        found = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
        if not found:
            return UNMADE if attempt.is_made else JobFacts("later", attempt.job_id)
        record = from_hash({**found, b"job_id": attempt.job_id.encode()}, self._bucket)
        return record if record.status in ("done", "partial") else _fetch_facts(record, None)


def _of_task(attempt: JobAttempt, values: Sequence[bytes | None]) -> JobFacts:
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
