"""How long the queues are, and how long their oldest job has waited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from fetchbox.config.v1 import config_pb2
from kernel.log.backlog import Backlogs
from kernel.log.queue_sample import sample_queue
from kernel.queue.files.names import ListNames
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics

_MOST_COUNTED = 500
"""Entries of a partition that are counted where the server has lost count of what its group has not read."""


class QueueSampler:
    """Sets the gauges of the priority lists, of what stands around them, and of the streams of work."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        names = ListNames(config.worker)
        self._clients = clients
        self._backlogs = Backlogs(clients, config, count_limit=_MOST_COUNTED)
        self._queues = names.queues
        self._lists = names.all

    async def run(self) -> None:
        """One sample. Raises `UNAVAILABLE` where Redis does not answer."""
        pipe = self._clients.commands.pipeline(transaction=False)
        for name in self._lists:
            pipe.llen(name)
        pipe.zcard(keys.FILE_DELAYED)
        for name in self._queues:
            pipe.lindex(name, -1)
        # A key of another kind has no length; the others are shown all the same.
        lengths = await pipe.execute(raise_on_error=False)
        oldest = lengths[-len(self._queues) :]
        for name, length in zip(self._lists, lengths, strict=False):
            metrics.QUEUE_LENGTH.labels(metrics.queue(name)).set(_number(length))
        metrics.FILES_DELAYED.set(_number(lengths[len(self._lists)]))
        now = await self._clients.now_ms()
        for name, job in zip(self._queues, oldest, strict=True):
            metrics.QUEUE_OLDEST_WAITING.labels(metrics.queue(name)).set(waiting_ms(job, now) / 1000)
        parts = await self._backlogs.topic(keys.TASKS)
        _show(keys.TASKS, sum(part.waiting for part in parts), max(part.unread_age_ms for part in parts))
        queue = await sample_queue(self._clients)
        _show(keys.QUEUE, queue.waiting, queue.oldest_ms)


def _show(name: str, waiting: int, oldest_ms: int) -> None:
    label = metrics.queue(name)
    metrics.QUEUE_LENGTH.labels(label).set(waiting)
    metrics.QUEUE_OLDEST_WAITING.labels(label).set(oldest_ms / 1000)


def _number(reply: Any) -> int:
    return reply if isinstance(reply, int) else 0


def waiting_ms(job: Any, now: int) -> int:
    """How long ago a job was made, by its `creation_time` (RFC 3339); 0 where it has none that can be read."""
    try:
        made = datetime.fromisoformat(orjson.loads(job)["creation_time"])
    except (ValueError, TypeError, LookupError):
        return 0
    if made.tzinfo is None:
        made = made.replace(tzinfo=UTC)
    return max(0, now - int(made.timestamp() * 1000))
