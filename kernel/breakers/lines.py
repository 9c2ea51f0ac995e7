"""Lines of `jobs.logs` that tell when a breaker opened and closed: reports count the time between.

The process tells that was told. A line may be lost, where Redis does not answer or the process dies: the breaker's
state is in Redis, and nobody's work waits for a line.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from fetchbox.jobs.jobs_pb2 import LOG_LEVEL_INFO, LOG_LEVEL_WARN, JobLog, LogLevel
from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

_MOST: Final = 1000
"""Lines that wait; the oldest go first."""
_PATIENCE_SECONDS: Final = 5.0
"""How long a line is kept for a Redis that is away."""
_PAUSE_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 1.0

_log = get_logger("breakers")

Publish = Callable[[JobLog, str], Awaitable[object]]
"""Appends a line to the partition of a key; raises `UNAVAILABLE`."""


class BreakerLines:
    """Publishes them one after the other, in a task of its own."""

    def __init__(self, publish: Publish, clock: Clock) -> None:
        self._publish = publish
        self._clock = clock
        self._waiting: deque[tuple[str, JobLog]] = deque(maxlen=_MOST)
        self._task: asyncio.Task[None] | None = None

    def opened(self, name: str) -> None:
        """A breaker that was closed is open."""
        self._tell(name, LOG_LEVEL_WARN, "the breaker opened", {"event": "opened"})

    def closed(self, name: str, open_ms: int) -> None:
        """A breaker is closed that was not for so long."""
        self._tell(name, LOG_LEVEL_INFO, "the breaker closed", {"event": "closed", "open_ms": str(open_ms)})

    async def stop(self) -> None:
        """Sends what there is, for a moment. Safe twice."""
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=_STOP_SECONDS)
        await ended(task)

    def _tell(self, name: str, level: LogLevel.ValueType, message: str, facts: dict[str, str]) -> None:
        fields = {"breaker": name, **facts}
        line = JobLog(level=level, message=message, fields=fields, timestamp_ms=self._clock.now_ms())
        self._waiting.append((name, line))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_all(), name="breakers.lines")

    async def _send_all(self) -> None:
        while self._waiting:
            await self._send(*self._waiting.popleft())

    async def _send(self, name: str, line: JobLog) -> None:
        end = self._clock.monotonic() + _PATIENCE_SECONDS
        while (error := await self._error(name, line)) is not None:
            if self._clock.monotonic() >= end:
                _log.warn("breaker_line_lost", key=name, error=error)
                return
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _error(self, name: str, line: JobLog) -> FetchboxError | None:
        try:
            await self._publish(line, name)
        except FetchboxError as error:
            return error
        return None
