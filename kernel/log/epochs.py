"""Keeps every stream id fit for an offset when the clock of Redis stands still or goes back.

Redis then goes on with the last millisecond and counts `seq` up. Long before the 20 bits that an offset has for it are
used up, the stream's time is moved on by a millisecond: ids keep rising, the clock catches up later, and an alarm says
so.
"""

from __future__ import annotations

from typing import Final

from redis.exceptions import ResponseError

from fetchbox.config.v1 import config_pb2
from kernel.log.offsets import MAX_SEQ, parse_id
from kernel.log.redis import RedisLog
from kernel.log.shapes import StreamShape, shapes
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_HIGH: Final = MAX_SEQ // 2
_TOLERATED_MS: Final = 1_000

_log = get_logger("log")


class Epochs:
    """Watches the newest id of every partition."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._log = RedisLog(clients)
        self._shapes = shapes(config)

    async def keep(self) -> None:
        """One look at every partition; run it at least every minute."""
        for shape in self._shapes:
            behind = max([await self._look(shape, stream) for stream in shape.streams()])
            metrics.CLOCK_BEHIND.labels(topic=shape.topic).set(behind / 1000)

    async def _look(self, shape: StreamShape, stream: str) -> int:
        """How far the clock is behind the newest entry, in ms; 0 where it is not."""
        ms, seq = parse_id(await self._log.last(stream))
        behind = max(0, ms - await self._clients.now_ms())
        if behind > _TOLERATED_MS:
            _log.error("redis_clock_went_back", stream=stream, lag=behind)
        if seq > _HIGH:
            await self._move_on(shape, stream, ms + 1)
        return behind

    async def _move_on(self, shape: StreamShape, stream: str, ms: int) -> None:
        try:
            await self._clients.commands.execute_command("XSETID", stream, f"{ms}-0")
        except ResponseError as error:
            if "smaller" not in str(error):
                raise
            return  # The clock has caught up meanwhile, and newer entries have come.
        metrics.OFFSET_EPOCHS.labels(topic=shape.topic).inc()
        _log.error("offset_epoch_begun", stream=stream, offset=f"{ms}-0")
