"""Entries that were delivered before: due again, given back, left by the dead, or suspected of killing.

Every worker does this for all partitions beside its reads; there is no separate reaper to lose. Two that do it at
once cannot both get an entry: each script looks and moves in one step.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.durations import millis, seconds
from kernel.queue.streams.entry import QueueEntry, read
from kernel.redis import keys, scripts
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command, PipeLost
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_TICK = 0.25
"""How often an idle worker looks for retries that are due, in seconds; its own it knows better."""
_HEAD = 4
"""What a reply to `reap` says before it names entries."""
_MOST_NAMED = 20
"""Jobs that one line in the log names."""
_JITTER = 0.25
"""The workers of a fleet must not look for the dead at the same time."""
_log = get_logger(__name__)


class Takeover:
    """Takes over what is due, orphaned or suspect."""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        config: config_pb2.Config,
        places: Mapping[str, int],
        worker: str,
        remote: Collection[str],
        aside: Sequence[str],
    ) -> None:
        """`places` are the lanes to look at, each with its place among all.

        `remote` are the tasks that only workers elsewhere run; `aside` the consumers of the queue under which others
        have put what this worker takes.
        """
        self._link = link
        self._clock = clock
        self._places = places
        self._worker = worker
        self._crash_limit = config.worker.crash_limit
        self._reap_interval = seconds(config.worker.reap_interval)
        self._ttl = seconds(config.worker.heartbeat_ttl)
        self._unregistered_ms = millis(config.tasks.unregistered_idle)
        self._elsewhere = [part for task in remote for part in (task, keys.routed(task))]
        self._aside = aside
        self._next_due = 0.0
        self._next_reap = 0.0
        self.suspects = 0
        """Entries that wait to be run alone."""

    def idle_for(self) -> float:
        """Seconds until there is something to look for."""
        return max(0.0, min(self._next_due, self._next_reap) - self._clock.monotonic())

    def hint(self, delay: float) -> None:
        """Something of ours will be due in so many seconds."""
        self._next_due = min(self._next_due, self._clock.monotonic() + delay)

    async def take(self, limit: int) -> list[QueueEntry]:
        """Up to `limit` entries that are ours now; none between the times to look."""
        now = self._clock.monotonic()
        taken: list[QueueEntry] = []
        try:
            if now >= self._next_due:
                taken = await self._due(limit)
            if now >= self._next_reap and len(taken) < limit:
                taken += await self._reap(limit - len(taken))
        except PipeLost as lost:
            _log.warn("lane_takeover_lost", error=str(lost))
        return taken

    async def suspect(self) -> QueueEntry | None:
        """One suspect, to be run alone; None where there is none or another worker runs one of its partition."""
        for lane, place in self._places.items():
            ask = command(scripts.SUSPECT, self._keys(lane), [keys.GROUP_WORKERS, self._worker])
            reply = (await self._link.run([ask]))[0]
            if not is_error(reply) and len(reply) == 4:
                return read(lane, place, *reply, solo=True)
        self.suspects = 0
        return None

    async def _due(self, limit: int) -> list[QueueEntry]:
        share = -(-limit // len(self._places))
        commands = [
            command(scripts.DUE, [*self._keys(lane), keys.delayed(lane)], [keys.GROUP_WORKERS, self._worker, share])
            for lane in self._places
        ]
        if self._aside:
            commands.append(collect(self._worker, limit, self._aside))
        replies = await self._link.run(commands)
        found = collected(replies.pop(), self._places[keys.QUEUE]) if self._aside else []
        waits = [reply[0] / 1000 for reply in replies if not is_error(reply) and reply[0] >= 0]
        if len(found) == limit:  # there may be more of them
            waits.append(0.0)
        self._next_due = self._clock.monotonic() + min([_TICK, *waits])
        return self._entries(replies, 1) + found

    async def _reap(self, limit: int) -> list[QueueEntry]:
        share = -(-limit // len(self._places))
        args: list[str | int] = [keys.GROUP_WORKERS, self._worker, share, self._crash_limit]
        of_queue = [self._unregistered_ms, *self._elsewhere]
        replies = await self._link.run(
            [
                command(scripts.REAP, self._keys(lane), [*args, *(of_queue if lane == keys.QUEUE else [0])])
                for lane in self._places
            ]
        )
        good = {
            lane: reply
            for lane, reply in zip(self._places, replies, strict=True)
            if not is_error(reply) and len(reply) >= _HEAD
        }
        died = self._told({lane: reply for lane, reply in good.items() if lane != keys.QUEUE}, keys.TASKS)
        died += self._told({lane: reply for lane, reply in good.items() if lane == keys.QUEUE}, keys.QUEUE)
        self.suspects = sum(reply[0] for reply in good.values())
        taken = self._entries(replies, _HEAD)
        if not taken and not died:  # until nothing is left: a worker may have died with more than we have room for
            pause = self._reap_interval * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load
            self._next_reap = self._clock.monotonic() + pause
        return taken

    def _told(self, replies: Mapping[str, Any], queue: str) -> int:
        """Counts what was taken from the dead, by the name that a queue has in metrics; how much that is."""
        died = sum(int(reply[1]) for reply in replies.values())
        if not died:
            return 0
        late = max(reply[2] for reply in replies.values())
        label = metrics.queue(queue)
        metrics.CRASHES.inc(died)
        metrics.REAPED.labels(label).inc(died)
        if late >= 0:
            metrics.RECOVERY_SECONDS.labels(label).observe(late / 1000 + self._ttl)
        _log.warn("jobs_reaped", queue=queue, count=died, delay_ms=late, job_ids=self._named(replies))
        return died

    def _named(self, replies: Mapping[str, Any]) -> list[str]:
        """The jobs of the first that died, those that can be read; at most `_MOST_NAMED`."""
        found: dict[str, None] = {}
        for lane, reply in replies.items():
            for item in reply[_HEAD - 1]:
                entry = read(lane, self._places[lane], item, 1, 0, 0)
                entry.decode()
                if entry.work is not None:
                    found[entry.work.job_id] = None
        return list(found)[:_MOST_NAMED]

    def _entries(self, replies: Sequence[Any], head: int) -> list[QueueEntry]:
        found: list[QueueEntry] = []
        for (lane, place), reply in zip(self._places.items(), replies, strict=True):
            if not is_error(reply):
                found += [read(lane, place, *reply[i : i + 4]) for i in range(head, len(reply), 4)]
        return found

    @staticmethod
    def _keys(lane: str) -> list[str]:
        return [lane, keys.lease(lane), keys.redo(lane)]


def collect(worker: str, limit: int, names: Sequence[str], suspect: int = -1, *, empty: bool = False) -> Command:
    """Takes up to `limit` entries of the queue that were put aside under these names.

    What has lost its process `suspect` times is taken alone, for one who holds nothing (`empty`).
    """
    args: list[str | int] = [keys.GROUP_WORKERS, worker, limit, suspect, int(empty), *names]
    return command(scripts.COLLECT, [keys.QUEUE, keys.lease(keys.QUEUE), keys.redo(keys.QUEUE)], args)


def collected(reply: Any, place: int) -> list[QueueEntry]:
    """The entries of a reply to `collect`; `place` is that of the queue among the lanes."""
    if is_error(reply) or len(reply) < 4:
        return []
    return [read(keys.QUEUE, place, *reply[i : i + 4]) for i in range(0, len(reply), 4)]
