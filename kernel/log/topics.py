"""Typed partitioned topics on Redis streams (tasks, status, logs, dead letters), and whoever reads and writes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs import jobs_pb2
from kernel.log import offsets
from kernel.log.groups import Group
from kernel.log.messages import Received, fields_of, received
from kernel.log.offsets import START
from kernel.log.provisioning import provision
from kernel.log.redis import RedisLog
from kernel.log.store import Entry
from kernel.redis import keys
from kernel.redis.clients import RedisClients

__all__ = ["Group", "Received", "Topic", "Topics", "provision"]

M = TypeVar("M", bound=Message)


class Topic(Generic[M]):
    """One of the four topics: messages of one type in a fixed number of partitions.

    Every method raises `UNAVAILABLE` where Redis does not answer; a publication may then have happened.
    """

    def __init__(self, clients: RedisClients, log: RedisLog, name: str, kind: type[M], partitions: int) -> None:
        self.name = name
        self.partitions = partitions
        self._clients = clients
        self._log = log
        self._kind = kind

    def partition_of(self, job_id: str) -> int:
        """The partition of a job: CRC-32 of its id modulo the count."""
        return keys.partition_of(job_id, self.partitions)

    def stream(self, partition: int) -> str:
        """The key of a partition."""
        return keys.stream(self.name, partition)

    async def publish(self, message: M, key: str = "", traceparent: str = "") -> str:
        """Appends to the partition of `key` (default: the message's job id); the entry's id."""
        stream = self.stream(self.partition_of(key or job_id_of(message)))
        return await self._log.append(stream, fields_of(message, traceparent))

    async def publish_many(self, messages: Sequence[M], traceparent: str = "") -> None:
        """Appends messages, in their order within each partition, in one round trip."""
        by_stream: dict[str, list[M]] = {}
        for message in messages:
            by_stream.setdefault(self.stream(self.partition_of(job_id_of(message))), []).append(message)
        pipe = self._clients.commands.pipeline(transaction=False)
        for stream, own in by_stream.items():
            for message in own:
                pairs = [part for pair in fields_of(message, traceparent).items() for part in pair]
                pipe.execute_command("XADD", stream, "*", *pairs)
        if by_stream:
            await pipe.execute()

    async def read(self, partition: int, after: str = START, limit: int = 100) -> list[Received[M]]:
        """Up to `limit` messages behind `after`; fewer only at the end. Undecodable entries are counted and skipped."""
        found: list[Received[M]] = []
        while len(found) < limit:
            asked = limit - len(found)
            entries = await self._log.read(self.stream(partition), after, asked)
            found += self._messages(partition, entries)
            if len(entries) < asked:
                break
            after = entries[-1].id
        return found

    async def subscribe(
        self, partition: int, after: str = START, limit: int = 100
    ) -> AsyncGenerator[list[Received[M]], None]:
        """Backfill and live messages behind `after` in one read without a gap (`LogStore.subscribe`)."""
        entries = self._log.subscribe(self.stream(partition), after, limit)
        try:
            async for batch in entries:
                if messages := self._messages(partition, batch):
                    yield messages
        finally:
            await entries.aclose()

    async def last(self, partition: int) -> str:
        """The highest id the partition ever gave; `0-0` when there was none."""
        return await self._log.last(self.stream(partition))

    async def position(self, job_id: str) -> int:
        """The offset of the newest entry in a job's partition.

        Taken at the accept of a job, on `jobs.logs`, it is the `log_offset`: it lies just before the job's first line,
        since cursors are exclusive.
        """
        return offsets.offset(await self.last(self.partition_of(job_id)))

    def group(self, name: str, consumer: str) -> Group[M]:
        """A consumer of all partitions in a consumer group; `consumer` is unique among the processes that run."""
        streams = [self.stream(partition) for partition in range(self.partitions)]
        return Group(self._clients, self.name, self._kind, streams, name, consumer)

    def _messages(self, partition: int, entries: Sequence[Entry]) -> list[Received[M]]:
        found = (received(self.name, self._kind, partition, entry.id, entry.fields) for entry in entries)
        return [item for item in found if item is not None]


class Topics:
    """The four topics with the shapes of the configuration."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._log = log = RedisLog(clients)
        shapes = config.streams
        self.tasks = Topic(clients, log, keys.TASKS, jobs_pb2.DownloadTask, shapes.tasks.partitions)
        self.status = Topic(clients, log, keys.STATUS, jobs_pb2.JobStatus, shapes.status.partitions)
        self.logs = Topic(clients, log, keys.LOGS, jobs_pb2.JobLog, shapes.logs.partitions)
        self.dlq = Topic(clients, log, keys.DLQ, jobs_pb2.DeadLetterTask, shapes.dlq.partitions)

    async def close(self) -> None:
        """Ends the subscriptions. Only who subscribes needs it; safe twice."""
        await self._log.close()


def job_id_of(message: Message) -> str:
    """The job that a message is about: it decides the partition."""
    if isinstance(message, jobs_pb2.DeadLetterTask):
        # An undecodable entry has no job; its id keeps repetitions in one partition.
        return message.task.job_id or message.id
    return str(getattr(message, "job_id", ""))
