"""The dead letters as an operator needs them: newest first, one by one, deleted by hand, and put back exactly once.

Reading in the order of arrival is `Topics.dlq`; this is what only the operator does with `fetchbox.jobs.dlq`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs.jobs_pb2 import DeadLetterTask
from kernel.durations import millis
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.scripts import PUBLISH_ONCE, QUEUE_ONCE

NEWEST = "+"
"""The cursor behind every entry."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter and its place; `message` is None where the entry is no `DeadLetterTask`."""

    partition: int
    id: str
    message: DeadLetterTask | None
    traceparent: str = ""


class DeadLetters:
    """The partitions of `fetchbox.jobs.dlq`. Every method raises `UNAVAILABLE` where Redis does not answer."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self.partitions = config.streams.dlq.partitions
        self._clients = clients
        self._keep_ms = millis(config.streams.dlq.retention)

    async def newest(self, partition: int, before: str = NEWEST, limit: int = 100) -> list[Letter]:
        """Up to `limit` letters with ids below `before`, newest first."""
        end = NEWEST if before == NEWEST else f"({before}"
        stream = keys.stream(keys.DLQ, partition)
        reply = await self._clients.commands.execute_command("XREVRANGE", stream, end, "-", "COUNT", limit)
        return [_letter(partition, entry, fields) for entry, fields in reply]

    async def oldest(self, partition: int, after: str, limit: int = 100) -> list[Letter]:
        """Up to `limit` letters with ids above `after`, oldest first."""
        stream = keys.stream(keys.DLQ, partition)
        reply = await self._clients.commands.execute_command("XRANGE", stream, f"({after}", "+", "COUNT", limit)
        return [_letter(partition, entry, fields) for entry, fields in reply]

    async def get(self, partition: int, entry: str) -> Letter | None:
        """One letter; None where it was deleted."""
        if not 0 <= partition < self.partitions:
            return None
        stream = keys.stream(keys.DLQ, partition)
        reply = await self._clients.commands.execute_command("XRANGE", stream, entry, entry)
        return next((_letter(partition, found, fields) for found, fields in reply), None)

    async def delete(self, partition: int, entries: Sequence[str]) -> int:
        """Deletes letters; how many were there."""
        if not entries:
            return 0
        return int(await self._clients.commands.execute_command("XDEL", keys.stream(keys.DLQ, partition), *entries))

    async def republish(
        self, once: str, lane: str, payload: bytes, *, recorded: bool = False, traceparent: str = ""
    ) -> bool:
        """Adds a task to the stream `lane`, unless one was added under the same `once` before; False then.

        What was added is remembered for as long as dead letters are kept, whatever becomes of the task meanwhile.
        `recorded`: its job has a record, so that a claim does not create one again after it was pruned.
        """
        args = (once, self._keep_ms, int(recorded), traceparent, payload)
        return bool(await self._clients.call(PUBLISH_ONCE, (lane, keys.replays(lane)), args))

    async def requeue(
        self, once: str, fields: Sequence[str | bytes], *, since_ms: int = 0, counted: str = "", job_id: str = ""
    ) -> bool:
        """Adds an entry (field, value, ...) to the queue, unless one was added under the same `once`; False then.

        A name from before `since_ms` belongs to an earlier life of the record and does not count. `counted` is the
        task of an entry that its acknowledgement takes out of `keys.open_tasks`, and then `job_id` its
        job, whose note leaves the outbox; both are empty for none.
        """
        names = (keys.QUEUE, keys.replays(keys.QUEUE), keys.open_tasks(), keys.outbox(keys.QUEUE), keys.noted_tasks())
        args = (once, self._keep_ms, since_ms, counted, job_id, *fields)
        return bool(await self._clients.call(QUEUE_ONCE, (*names, keys.job(job_id)), args))

    async def was_requeued(self, once: str) -> bool:
        """Whether an entry was added to the queue under this name, as far back as dead letters are kept."""
        found = await self._clients.commands.execute_command("ZSCORE", keys.replays(keys.QUEUE), once)
        return found is not None


def job_of(message: DeadLetterTask) -> str:
    """The job of a dead letter; empty for an undecodable entry."""
    return message.queued_task.job_id if message.HasField("queued_task") else message.task.job_id


def below(entry: str) -> str:
    """The bound for `newest` that lets `entry` itself in."""
    ms, seq = parse_id(entry)
    return f"{ms}-{seq + 1}"


def _letter(partition: int, entry: bytes, fields: Mapping[bytes, bytes]) -> Letter:
    try:
        message: DeadLetterTask | None = DeadLetterTask.FromString(fields.get(b"payload", b""))
    except DecodeError:
        message = None
    return Letter(partition, entry.decode(), message, fields.get(b"traceparent", b"").decode(errors="replace"))
