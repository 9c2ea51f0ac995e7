"""New entries: one blocking read over all partitions, on a connection of its own.

A read that its caller no longer waits for goes on: what it brings is kept for the next claim, since Redis counts it
as ours already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kernel.clock import Clock
from kernel.queue.streams.entry import QueueEntry, read
from kernel.redis import keys, scripts
from kernel.redis.clients import BLOCK_MARGIN
from kernel.redis.link import Link, command, is_error, lacks_group
from kernel.redis.pipe import Command, PipeLost
from kernel.telemetry.logs import get_logger

_LONGEST_PAUSE = 5.0
ANSWER = 0.01
"""Seconds within which a read that finds something is mostly answered."""
_log = get_logger(__name__)


class QueueReader:
    """Reads `>` of the consumer group from every partition."""

    def __init__(self, link: Link, clock: Clock, places: Mapping[str, int], consumer: str) -> None:
        """`places` are the lanes to read, each with its place among all."""
        self._link = link
        self._clock = clock
        self._lanes = list(places)
        self._partition = {lane.encode(): place for lane, place in places.items()}
        self._consumer = consumer
        self._reading: asyncio.Task[list[QueueEntry]] | None = None
        self.until: asyncio.Future[None] | None = None
        """Where there is one, nobody waits for a read beyond it; the read goes on."""
        self._begun = 0.0
        self._pause = 0.1
        self.last_poll = clock.monotonic()
        """When a read last succeeded, by the monotonic clock."""

    async def read(self, limit: int, block: float, linger: float | None = None) -> list[QueueEntry]:
        """At least `limit / partitions` entries of each busy partition; waits up to `block` seconds for the first.

        With `linger` it is waited for only so many seconds, while the read goes on: a later call gets what comes.
        """
        reading = self.begin(limit, block)
        patience = block + BLOCK_MARGIN if linger is None else linger
        if not reading.done():
            waited_for: list[asyncio.Future[Any]] = [reading] if self.until is None else [reading, self.until]
            await asyncio.wait(waited_for, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        return self.brought()

    def begin(self, limit: int, block: float) -> asyncio.Task[list[QueueEntry]]:
        """Starts a read, where none goes on."""
        if self._reading is None:
            self._begun = self._clock.monotonic()
            self._reading = asyncio.create_task(self._read(limit, block), name="lane-read")
        return self._reading

    @property
    def going_on(self) -> bool:
        """Whether there is a read whose entries nobody has got yet."""
        return self._reading is not None

    def brought(self) -> list[QueueEntry]:
        """The entries of a read that is done and that nobody has waited for."""
        if self._reading is None or not self._reading.done():
            return []
        task, self._reading = self._reading, None
        return task.result()

    @property
    def waits(self) -> bool:
        """Whether a read goes on and finds nothing: it would have been answered by now."""
        if self._reading is None or self._reading.done():
            return False
        return self._clock.monotonic() - self._begun > ANSWER

    async def drop(self) -> None:
        """Gives up the read that is under way; what Redis has given to it is found by the reconciliation."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    async def _read(self, limit: int, block: float) -> list[QueueEntry]:
        share = -(-limit // len(self._lanes))
        entries = await self._once(self._lanes, share, block)
        if len(entries) < limit:
            full = [lane for lane in self._lanes if sum(entry.lane == lane for entry in entries) >= share]
            if full:
                more = -(-(limit - len(entries)) // len(full))
                entries += await self._once(full, more, 0)
        return entries

    async def _once(self, lanes: Sequence[str], count: int, block: float) -> list[QueueEntry]:
        waiting: Command = ("BLOCK", max(1, int(block * 1000))) if block > 0 else ()
        ask: Command = ("XREADGROUP", "GROUP", keys.GROUP_WORKERS, self._consumer, "COUNT", count, *waiting)
        try:
            reply = (await self._link.run([(*ask, "STREAMS", *lanes, *(">" * len(lanes)))], block + BLOCK_MARGIN))[0]
        except PipeLost as lost:
            _log.warn("lane_read_lost", error=str(lost))
            return []
        if is_error(reply):
            await self._recover(reply)
            return []
        self.last_poll = self._clock.monotonic()
        self._pause = 0.1
        return self._entries(reply or ())

    def _entries(self, reply: Sequence[Any]) -> list[QueueEntry]:
        found: list[QueueEntry] = []
        for name, raws in reply:
            partition, lane = self._partition[name], name.decode()
            found += [read(lane, partition, raw) for raw in raws if raw[1] is not None]
        return found

    async def _recover(self, reply: Any) -> None:
        """A lost group or stream is made again from 0: settled work is turned away when it comes."""
        _log.error("lane_read_refused", error=str(reply))
        if lacks_group(reply):
            await provision(self._link, self._lanes)
        await self._clock.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


async def provision(link: Link, lanes: Sequence[str]) -> None:
    """Makes each stream and group that is missing."""
    await link.run([command(scripts.PROVISION, [lane, keys.cursors(lane)], [keys.GROUP_WORKERS]) for lane in lanes])
