"""File jobs of workers that died go back to their queues.

A pass walks through the registry of workers, a page at a time, and asks `file_reap` about each that may be dead. The
script looks and moves in one step, so any number of reapers may do this at once: a worker that comes back before the
move keeps its jobs, and no job is moved twice.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.durations import millis, seconds
from kernel.queue.files.names import ListNames
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

BUDGET_SECONDS = 0.2
"""How long a pass may take; the next one goes on where it stopped."""
BATCH = 500
"""The most entries that one run of the script moves."""
_CRASH_LOOP = "SYSTEM_CRASH_LOOP"
_MOST_NAMED = 20
_log = get_logger(__name__)


class ListReaper:
    """Takes from dead workers what they held. `run` is one pass; one pass at a time."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._names = ListNames(config.worker)
        self._ttl_ms = millis(config.worker.heartbeat_ttl)
        self._crash_limit = config.worker.crash_limit
        self._base_delay = seconds(config.reaper.base_delay)
        self._page = config.reaper.scan_count
        self._cursor = 0
        self._ahead: deque[str] = deque()
        """Workers that the registry named and that nobody has looked at yet."""

    async def run(self) -> int:
        """One pass: until all workers were looked at, or the budget is spent. Returns how many jobs it moved."""
        ends = self._clock.monotonic() + BUDGET_SECONDS
        moved = 0
        while True:
            if not self._ahead:
                await self._look_ahead()
            for _ in range(min(self._page, len(self._ahead))):
                moved += await self.visit(self._ahead.popleft(), ends)
                if self._clock.monotonic() >= ends:
                    return moved
            if self._clock.monotonic() >= ends or not (self._ahead or self._cursor):
                return moved
            await self._clock.sleep(self._base_delay * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, hides nothing

    async def visit(self, worker: str, ends: float) -> int:
        """Takes all that this worker holds, if it is dead; what is left at `ends` (monotonic) is the next pass's."""
        tally = _Tally(worker, self._names.queues)
        try:
            while tally.add(await self._reap(worker)):
                if self._clock.monotonic() >= ends:
                    self._ahead.appendleft(worker)
                    break
        except ResponseError as error:
            # One key of the wrong kind is the trouble of one worker; the others wait for their jobs.
            _log.warn("reaper_refused", worker_id=worker, error=str(error))
        finally:
            tally.tell()
        return tally.total

    async def _reap(self, worker: str) -> list[Any]:
        names = self._names
        found: list[Any] = await self._clients.call(
            scripts.FILE_REAP,
            [
                keys.FILE_WORKERS,
                names.heartbeat(worker),
                names.processing(worker),
                names.processing(keys.solo(worker)),
                keys.FILE_CRASHES,
                keys.FILE_SUSPECTS,
                names.dead_letters,
                *names.queues,
            ],
            [worker, self._ttl_ms, BATCH, self._crash_limit, *names.priorities],
        )
        return found

    async def _look_ahead(self) -> None:
        """The next workers of the registry that may be dead.

        One whose own beat is recent cannot be. One that did not register itself is always looked at (`file_reap`).
        """
        pipe = self._clients.commands.pipeline(transaction=False)
        pipe.time()
        pipe.zscan(keys.FILE_WORKERS, self._cursor, count=self._page)
        (second, micro), (cursor, found) = await pipe.execute()
        now = second * 1000 + micro // 1000
        self._cursor = int(cursor)
        for worker, score in found:
            if score % 1 or not now - self._ttl_ms <= score <= now:
                self._ahead.append(worker.decode(errors="replace"))


@dataclass(slots=True)
class _Tally:
    """What a pass took from one worker."""

    worker: str
    queues: Sequence[str]
    lag_ms: int = 0
    moves: dict[str, list[int]] = field(default_factory=dict)
    """Queue -> how many went back to it, became suspects, became dead letters."""
    jobs: dict[str, list[str]] = field(default_factory=dict)
    """Queue -> the ids of the first that went there."""
    total: int = 0

    def add(self, reply: Sequence[Any]) -> bool:
        """Counts a reply of `file_reap`; whether there is more that can be moved."""
        lag, left, named, *counts = reply
        moved = sum(counts)
        self.total += moved
        if moved:
            self.lag_ms = lag
        for index, queue in enumerate(self.queues if moved else ()):
            for kind, count in enumerate(counts[3 * index : 3 * index + 3]):
                self.moves.setdefault(queue, [0, 0, 0])[kind] += count
        for place, job_id in zip(named[::2], named[1::2], strict=True):
            self.jobs.setdefault(self.queues[place], []).append(job_id.decode(errors="replace"))
        return bool(left and moved)

    def tell(self) -> None:
        """One line and the metrics of each queue that got something."""
        for queue, (back, suspects, dead) in self.moves.items():
            count = back + suspects + dead
            if not count:
                continue
            label = metrics.queue(queue)
            metrics.REAPED.labels(label).inc(count)
            if self.lag_ms:  # one that took its leave with work left over did so at an untold time
                metrics.RECOVERY_SECONDS.labels(label).observe(self.lag_ms / 1000)
            metrics.CRASHES.inc(count)
            if dead:
                metrics.JOBS_DEAD.labels(label).inc(dead)
                metrics.DEAD_LETTERS.labels(_CRASH_LOOP).inc(dead)
            _log.warn(
                "jobs_reaped",
                worker_id=self.worker,
                queue=queue,
                count=count,
                waiting=suspects,
                failed=dead,
                delay_ms=self.lag_ms,
                job_ids=self.jobs.get(queue, [])[:_MOST_NAMED],
            )
