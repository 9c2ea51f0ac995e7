"""What the attempts at steps log becomes `runner.log` in the timeline of their run, while they work.

A line is published as soon as it is told; the store of flows gathers lines while an append is on its way, so the pace
is that of Redis. An attempt has a bounded number of lines on their way, and waits for room for a bounded time only: a
log is no reason to fail or to stand still. What could not be stored is counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from flows.model import values
from flows.model.kinds import LOG
from flows.model.label import Label
from flows.model.types import Context, Run
from flows.publishing.bus import Receipt
from flows.publishing.manager import EventManager
from kernel.errors import FetchboxError
from kernel.redis import keys
from kernel.tasks import ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

LEVELS: Final = ("trace", "debug", "info", "warn", "error")
"""The words that a field `level` of a line may be; any other is a field like others."""
_MOST_OUT: Final = 256
_PATIENCE: Final = 1.0
"""Seconds that a handler waits for room."""
LAST_WORDS: Final = 2.0
"""Seconds that the end of an attempt waits for its lines: once its run has ended, no line is stored."""
_CUT_LETTERS: Final = 4096

log = get_logger("steps")


class StepLogs:
    """The lines of all attempts of a worker; a duty."""

    name = "step_logs"

    def __init__(self, manager: EventManager) -> None:
        self._manager = manager
        self._writing: set[asyncio.Task[None]] = set()

    def of(self, label: Label, job_id: str) -> StepLog:
        """Where an attempt logs, which is this job."""
        return StepLog(self._manager, label, job_id, self._writing)

    async def start(self) -> None:
        """Nothing to begin."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: each attempt waits for its own lines."""

    async def stop(self) -> None:
        """Gives up what nobody waits for any more. Safe twice."""
        while self._writing:
            await ended(self._writing.pop())


class StepLog:
    """The lines of one attempt."""

    def __init__(self, manager: EventManager, label: Label, job_id: str, writing: set[asyncio.Task[None]]) -> None:
        self._manager = manager
        self._context = Context(Run.of(label.run, ""), waits=True)
        self._job_id = job_id
        self._meta = values.dump(
            {
                "flowId": label.flow_id,
                "stepKey": label.step_key,
                "stepRunId": job_id,
                "attempt": label.attempt,
                "jobId": job_id,
                "queue": keys.QUEUE,
            }
        )
        self._writing = writing
        self._out: deque[Receipt] = deque()
        self._room = asyncio.Event()
        self._collector: asyncio.Task[None] | None = None
        self._impatient = False
        self._lost = 0

    async def tell(self, level: str, message: str, facts: Mapping[str, Any]) -> None:
        """Publishes a line. Raises nothing but `CancelledError`; waits where too many lines are on their way."""
        if not await self._has_room():
            self._lose()
            return
        try:
            self._out.append(self._published(level, message, facts))
        except FetchboxError as error:
            log.debug("step_log_refused", job_id=self._job_id, error=error)
            self._lose()
            return
        if self._collector is None or self._collector.done():
            self._collector = asyncio.create_task(self._collect(), name="step-log")
            self._writing.add(self._collector)
            self._collector.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Waits for what is on its way, but not for long."""
        if self._collector is not None and not self._collector.done():
            await asyncio.wait({self._collector}, timeout=LAST_WORDS)

    def _published(self, level: str, message: str, facts: Mapping[str, Any]) -> Receipt:
        data: dict[str, Any] = {"level": level, "msg": message}
        if facts:
            data["meta"] = facts
        try:
            return self._manager.publish(LOG, values.dump(data), self._meta, self._context, keys.QUEUE)
        except FetchboxError:
            if len(message) <= _CUT_LETTERS and not facts:
                raise
        # It is too large for an event of a flow. The whole line is in the job's own events.
        data = {"level": level, "msg": message[:_CUT_LETTERS], "meta": {"cut": True}}
        return self._manager.publish(LOG, values.dump(data), self._meta, self._context, keys.QUEUE)

    async def _has_room(self) -> bool:
        if len(self._out) < _MOST_OUT:
            self._impatient = False
            return True
        if self._impatient:
            return False
        self._room.clear()
        try:
            await asyncio.wait_for(self._room.wait(), _PATIENCE)
        except TimeoutError:
            self._impatient = True
            return False
        return True

    async def _collect(self) -> None:
        """Learns what became of the lines, until none is on its way."""
        while self._out:
            try:
                stored = await self._out[0]
            except Exception as error:  # noqa: BLE001 - whatever it is, the line is lost and the work goes on
                log.debug("step_log_not_stored", job_id=self._job_id, error=error)
                self._lose()
            else:
                if stored.dropped:  # the run has as many lines as it may have
                    self._lose()
            self._out.popleft()
            self._room.set()
        if self._lost:
            log.warn("step_logs_lost", job_id=self._job_id, count=self._lost)
            self._lost = 0

    def _lose(self) -> None:
        self._lost += 1
        metrics.FLOW_LOGS_LOST.inc()
