"""Typed partitioned topics on Redis streams: the four streams of seed 000."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs import jobs_pb2
from kernel.log.offsets import START
from kernel.redis import RedisClients

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A message with its place: partition, id, and the `traceparent` it came with (empty for none)."""

    partition: int
    id: str
    message: M
    traceparent: str = ""

    @property
    def offset(self) -> int:
        """The id as a uint64 (`kernel.log.offsets`)."""
        raise NotImplementedError


class Topic(Generic[M]):
    """One of the four topics: messages of one type in a fixed number of partitions."""

    name: str
    partitions: int

    def partition_of(self, job_id: str) -> int:
        """The partition of a job."""
        raise NotImplementedError

    def stream(self, partition: int) -> str:
        """The key of a partition."""
        raise NotImplementedError

    async def publish(self, message: M, key: str = "", traceparent: str = "") -> str:
        """Appends to the partition of `key` (default: the message's job id); the entry's id."""
        raise NotImplementedError

    async def publish_many(self, messages: Sequence[M]) -> None:
        """Appends messages, in order for each job, in one round trip."""
        raise NotImplementedError

    async def read(self, partition: int, after: str = START, limit: int = 100) -> list[Received[M]]:
        """Up to `limit` messages behind `after`; undecodable entries are counted and skipped."""
        raise NotImplementedError

    def subscribe(self, partition: int, after: str = START) -> AsyncIterator[list[Received[M]]]:
        """Backfill and live messages behind `after` in one read without a gap."""
        raise NotImplementedError

    async def position(self, job_id: str) -> int:
        """The offset of the partition's newest entry: taken at the accept, it is just before the job's first log."""
        raise NotImplementedError

    def group(self, name: str, consumer: str) -> Group[M]:
        """A consumer of all partitions in a consumer group."""
        raise NotImplementedError


class Group(Generic[M]):
    """One consumer of a group: the group's position is stored in Redis, delivery is at-least-once."""

    async def read(self, limit: int = 100, wait: float = 1.0) -> list[Received[M]]:
        """Own unacknowledged messages first, then those of consumers idle for long, then new ones."""
        raise NotImplementedError

    async def ack(self, received: Sequence[Received[M]]) -> None:
        """Marks messages as done: they are not delivered again."""
        raise NotImplementedError


class Topics:
    """The four topics with the shapes of the configuration."""

    tasks: Topic[jobs_pb2.DownloadTask]
    status: Topic[jobs_pb2.JobStatus]
    logs: Topic[jobs_pb2.JobLog]
    dlq: Topic[jobs_pb2.DeadLetterTask]

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        raise NotImplementedError


async def provision(clients: RedisClients, config: config_pb2.Config) -> None:
    """Creates streams, partitions and groups; run it as often as you like. FetchboxError when a partition count differs."""
    raise NotImplementedError
