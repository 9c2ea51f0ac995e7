"""What someone has to do for the streams every now and then: retention, offsets, and the gauges that show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fetchbox.config.v1 import config_pb2
from kernel.log.backlog import Backlog, Backlogs
from kernel.log.epochs import Epochs
from kernel.log.offsets import parse_id
from kernel.log.provisioning import check, provision
from kernel.log.redis import RedisLog
from kernel.log.shapes import shapes
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from operator_svc.stream_retention import StreamRetention, stream_bytes

_log = get_logger("log")


class StreamKeeper:
    """The work of a periodic duty. Several processes may do it at once.

    Streams and groups that were lost with all data are made again: consumers do so with their own, and nobody consumes
    the dead letters. The task queue is only measured: its entries go with their settlement, and nothing else may remove
    one.
    """

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._config = config
        self._retention = StreamRetention(clients, config)
        self._epochs = Epochs(clients, config)
        self._backlogs = Backlogs(clients, config)
        self._log = RedisLog(clients)
        self._shapes = shapes(config)

    async def run(self) -> None:
        """One round."""
        for topic, removed in (await self._retention.enforce()).items():
            if removed:
                _log.info("stream_trimmed", topic=topic, removed=removed)
        await self._epochs.keep()
        await self._restore(await self.sample())

    async def _restore(self, parts: Sequence[Backlog]) -> None:
        if all(part.provisioned for part in parts) and not await check(self._clients, self._config):
            return
        await provision(self._clients, self._config)
        _log.warn("streams_restored")

    async def sample(self) -> list[Backlog]:
        """Sets the gauges of every topic and of the task queue; what they were read from."""
        parts = await self._backlogs.read()
        by_topic: dict[str, list[Backlog]] = defaultdict(list)
        for part in parts:
            by_topic[part.topic].append(part)
        for shape in self._shapes:
            await self._show(by_topic[shape.topic], shape.streams(), shape.groups)
        queue = by_topic[keys.QUEUE]
        await self._show(queue, [keys.QUEUE], (keys.GROUP_WORKERS,))
        metrics.STREAM_BYTES.labels(topic=keys.QUEUE).set(await stream_bytes(self._clients, keys.QUEUE))
        tasks = [*by_topic[keys.TASKS], *queue]
        metrics.DELAYED.set(sum(part.delayed for part in tasks))
        metrics.QUEUE_OLDEST_AGE.set(max((part.oldest_age_ms for part in tasks), default=0) / 1000)
        return parts

    async def _show(self, parts: Sequence[Backlog], streams: Sequence[str], groups: Sequence[str]) -> None:
        topic, now = parts[0].topic, await self._clients.now_ms()
        metrics.STREAM_LENGTH.labels(topic=topic).set(sum(part.length for part in parts))
        firsts = [await self._log.first(stream) for stream in streams]
        oldest = min((parse_id(first)[0] for first in firsts if first is not None), default=now)
        metrics.STREAM_OLDEST_AGE.labels(topic=topic).set(max(0, now - oldest) / 1000)
        for group in groups:
            metrics.GROUP_LAG.labels(topic=topic, group=group).set(sum(part.waiting for part in parts))
            metrics.GROUP_PENDING.labels(topic=topic, group=group).set(sum(part.pending for part in parts))
