"""The lane that claims and settles for workers elsewhere; it runs nothing itself.

Resources it reads like any other worker (`claim`). It reads no task jobs that way: those that are `remote`
are put aside by whoever reads the queue, each under the name of its task (`keys.routed`), and come to it from there
(`collect`). Where nobody reads the queue, since slots are full or paused, it reads it for the others and puts all
aside: also what is for slots, under `keys.SLOTS` (`put_aside`). A claim that was moved to its worker elsewhere is no
longer the lane's (`lend`), until it comes back to be settled (`adopt`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.config.loading import TASKS
from kernel.durations import seconds
from kernel.queue.streams.deferring import CircuitGate
from kernel.queue.streams.entry import QueueEntry
from kernel.queue.streams.reader import QueueReader
from kernel.queue.streams.takeover import Takeover, collect, collected
from kernel.queue.streams.worker import WorkerLane
from kernel.queue.work.retry import RetryRule
from kernel.queue.work.types import Claim
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.link import Link, is_error
from kernel.redis.pipe import PipeLost
from kernel.telemetry.logs import get_logger

_log = get_logger(__name__)
_SUSPECT_WAITS = [-2]


class LendingLane(WorkerLane):
    """A lane without slots, whose claims are for others."""

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
        finalizes: Callable[[str], bool],
        retry_rule: Callable[[Claim], RetryRule],
        remote: Collection[str] = (),
        gate: CircuitGate | None = None,
    ) -> None:
        super().__init__(clients, config, worker_id, clock, rng, finalizes, retry_rule, remote, slots=False, gate=gate)
        self._place = self._publisher.partition[keys.QUEUE]
        self._suspect = config.worker.crash_limit - 1
        queue = {keys.QUEUE: self._place}
        patience = max(1.0, seconds(config.redis.read_timeout))
        self._queue_link = Link(clients, f"fetchbox-queue-{worker_id}", (scripts.PROVISION,), patience)
        self._queue_reader = QueueReader(self._queue_link, clock, queue, worker_id)
        self._queue_takeover = Takeover(self._link, clock, config, queue, worker_id, remote, [keys.RETURNED])
        self._unplaced: list[QueueEntry] = []
        self._placing = asyncio.Lock()

    async def stop(self) -> None:
        """Gives back what is left and leaves. Safe twice."""
        await self._queue_reader.drop()
        self._kept += self._unplaced
        self._unplaced = []
        await super().stop()
        self._queue_link.close()

    async def collect(self, tasks: Sequence[str], limit: int, *, empty: bool = True) -> list[Claim] | None:
        """Up to `limit` of the tasks that were put aside for workers elsewhere; none where there are none now.

        One that may have killed its processes comes alone, and only for a worker that is `empty`: None where it waits
        for such a one. What is taken by a call that fails is found by the reconciliation.
        """
        if not self._alive:
            return []
        epoch = self.epoch
        names = [keys.routed(task) for task in tasks]
        try:
            reply = (await self._link.run([collect(self.worker_id, limit, names, self._suspect, empty=empty)]))[0]
            if reply == _SUSPECT_WAITS:
                return None
            entries = collected(reply, self._place)
            for entry in entries:
                entry.solo = entry.crashes >= self._suspect
            claims = await self._starter.start(entries, epoch, routed=True)
        except PipeLost as lost:
            _log.warn("lane_claim_lost", error=str(lost))
            return []
        if epoch != self.epoch:
            return []
        for claim in claims:
            self._held[claim.partition, claim.entry] = claim
        return claims

    async def put_aside(self, limit: int, wait: float) -> int:
        """Puts up to `limit` tasks of the queue aside; waits up to `wait` seconds for the first. How many it were."""
        if not self._alive:
            await self._clock.sleep(min(wait, 0.05))
            return 0
        async with self._placing:
            return await self._put_aside(limit, wait)

    async def _put_aside(self, limit: int, wait: float) -> int:
        try:
            if not self._unplaced:
                self._unplaced = await self._queue_takeover.take(limit)
            if not self._unplaced:
                self._unplaced = await self._queue_reader.read(limit, min(wait, self._queue_takeover.idle_for()))
            placed = self._unplaced
            if placed:
                await self._starter.start(placed, self.epoch)
                self._unplaced = self._unplaced[len(placed) :]
        except PipeLost as lost:
            _log.warn("lane_put_aside_lost", error=str(lost))
            await self._clock.sleep(min(wait, 0.05))
            return 0
        return len(placed)

    async def lying_aside(self) -> dict[str, int]:
        """How many tasks lie there for workers elsewhere, by task. Raises `PipeLost`."""
        reply = (await self._link.run([("XPENDING", keys.QUEUE, keys.GROUP_WORKERS)]))[0]
        if is_error(reply) or not reply[0]:
            return {}
        held = {name.decode(): int(count) for name, count in reply[3]}
        return {task: held[keys.routed(task)] for task in TASKS if keys.routed(task) in held}

    async def agree(self) -> None:
        """Gives back, from time to time, what the server counts as this lane's and nobody here knows of."""
        if self._alive:
            await self._reconcile_when_due()

    def lend(self, claims: Iterable[Claim]) -> None:
        """Forgets claims that were moved to another consumer."""
        for claim in claims:
            self._held.pop((claim.partition, claim.entry), None)

    def adopt(self, claim: Claim) -> Claim:
        """A claim that was moved (back) to this lane, as one that it may settle."""
        claim.epoch = self.epoch
        return claim

    def _lease_changed(self, alive: bool) -> None:
        if not alive:
            self._unplaced = []
        super()._lease_changed(alive)
