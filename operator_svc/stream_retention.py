"""Retention of the four streams: time first, then size, a bounded piece of work a pass.

Of `jobs.tasks` only settled entries go, whatever their age and the size of the stream: the lane's own script decides
that (`kernel/redis/lua/trim.lua`). Of the others every entry may go: what a group has not read by then is of no use any
more. Of none goes what the exporter has not written into the lake yet, until it has been silent for `exporter.hold`.
"""

from __future__ import annotations

from typing import Final

from fetchbox.config.v1 import config_pb2
from kernel.durations import millis
from kernel.log.exported import Exported
from kernel.log.redis import RedisLog
from kernel.log.shapes import StreamShape, shapes
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.scripts import SHED, TRIM
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_STEPS: Final = 10
_STEP: Final = 10_000
"""The most entries that one call removes: trimming never holds up the server for long."""
_SAMPLES: Final = 20

_log = get_logger("log")


class StreamRetention:
    """Removes what is older or more than the configuration keeps. Raises `UNAVAILABLE` where Redis does not answer."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._log = RedisLog(clients)
        self._shapes = shapes(config)
        self._hold = millis(config.exporter.hold)
        self._exported = Exported(clients, self._hold)

    async def enforce(self) -> dict[str, int]:
        """One pass over every partition, of up to 100,000 entries each; how many went, by topic."""
        removed = {}
        for shape in self._shapes:
            await self._tell(shape)
            removed[shape.topic] = await self._enforce(shape)
            metrics.STREAM_TRIMMED.labels(topic=shape.topic).inc(removed[shape.topic])
        return removed

    async def _tell(self, shape: StreamShape) -> None:
        """Says for how many partitions retention goes on without the exporter that they had."""
        lapsed = self._exported.lapsed((await self._exported.standing(shape.streams())).values())
        metrics.EXPORT_HOLD_LAPSED.labels(topic=shape.topic).set(lapsed)
        if lapsed:
            _log.error("export_hold_lapsed", topic=shape.topic, count=lapsed)

    async def _enforce(self, shape: StreamShape) -> int:
        remove = self._settled if shape.topic == keys.TASKS else self._oldest
        removed = 0
        for stream in shape.streams():
            removed += await remove(stream, shape, 0)
        for stream, keep in (await self._over_size(shape)).items():
            removed += await remove(stream, shape, keep)
        return removed

    async def _oldest(self, stream: str, shape: StreamShape, keep: int) -> int:
        removed = 0
        for _ in range(_STEPS):
            args = (shape.retention_ms, self._hold, keep, _STEP)
            step = int(await self._clients.call(SHED, (stream, keys.cursors(stream)), args))
            removed += step
            if not step:
                break
        return removed

    async def _settled(self, stream: str, shape: StreamShape, keep: int) -> int:
        removed = 0
        for _ in range(_STEPS):
            args = (shape.retention_ms, self._hold, keep, _STEP)
            step = int((await self._clients.call(TRIM, (stream, keys.cursors(stream)), args))[0])
            removed += step
            if not step:
                break
        return removed

    async def _over_size(self, shape: StreamShape) -> dict[str, int]:
        """How many entries each partition may keep, where the topic is over its size; nothing where it is not.

        Redis tells the bytes of a stream by sampling it; the partitions give up the same share, so the oldest go first.
        """
        sizes = {stream: await stream_bytes(self._clients, stream) for stream in shape.streams()}
        total = sum(sizes.values())
        metrics.STREAM_BYTES.labels(topic=shape.topic).set(total)
        if total <= shape.max_bytes:
            return {}
        lengths = {stream: await self._log.length(stream) for stream in sizes}
        # At least one entry: a script takes 0 for "no limit", and a cap below one entry empties nothing useful.
        return {stream: max(1, length * shape.max_bytes // total) for stream, length in lengths.items() if length}


async def stream_bytes(clients: RedisClients, stream: str) -> int:
    """The memory of a stream, sampled; 0 where there is none."""
    return int(await clients.commands.execute_command("MEMORY USAGE", stream, "SAMPLES", _SAMPLES) or 0)
