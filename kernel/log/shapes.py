"""The four topics: their messages, and the partitions and retention that the configuration gives them."""

from __future__ import annotations

from dataclasses import dataclass

from fetchbox.config.v1 import config_pb2
from kernel.durations import millis
from kernel.redis import keys


@dataclass(frozen=True, slots=True)
class StreamShape:
    """One topic: its partitions, how long and how much it keeps, and the groups that consume it.

    Ingest only produces, so it has no group. Dead letters are listed and replayed by place, without one.
    """

    topic: str
    partitions: int
    retention_ms: int
    max_bytes: int
    groups: tuple[str, ...] = ()

    def streams(self) -> list[str]:
        """The keys of all partitions."""
        return [keys.stream(self.topic, partition) for partition in range(self.partitions)]


def shapes(config: config_pb2.Config) -> list[StreamShape]:
    """The shapes of all topics."""
    streams = config.streams
    return [
        _shape(keys.TASKS, streams.tasks, keys.GROUP_WORKERS),
        _shape(keys.STATUS, streams.status, keys.GROUP_OPERATORS),
        _shape(keys.LOGS, streams.logs, keys.GROUP_OPERATORS),
        _shape(keys.DLQ, streams.dlq),
    ]


def _shape(topic: str, stream: config_pb2.Stream, *groups: str) -> StreamShape:
    return StreamShape(topic, stream.partitions, millis(stream.retention), stream.max_bytes, groups)
