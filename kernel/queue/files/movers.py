"""Blocked moves: while every queue is empty, one waits at each, so that a push by anybody wakes an idle worker.

Each is a `BRPOPLPUSH` (as `BLMOVE`), on a connection of its own, once a queue and not once a slot. It
begins when the queues were found empty, and ends with the first job that it brings, or with its timeout once nobody
waits any more. A move that was sent is waited for: Redis may have given it a job already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from kernel.clock import Clock
from kernel.redis.clients import BLOCK_MARGIN, RedisClients
from kernel.redis.link import Link, is_error
from kernel.redis.pipe import PipeLost
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

_PAUSE = 0.5
_log = get_logger(__name__)


class Movers:
    """The blocked moves of one worker."""

    def __init__(
        self,
        clients: RedisClients,
        clock: Clock,
        name: str,
        queues: Sequence[str],
        processing: str,
        timeout: float,
        brought: Callable[[int, bytes], None],
        over: Callable[[bool], None],
    ) -> None:
        """`timeout`, in seconds, is that of one move.

        `brought` is told the number of a queue and its job; `over`, that a move has ended without one: True where that
        was for a fault, so that nobody is woken by it.
        """
        self.waited_for = 0
        """How many wait for a job now; without any, moves end with their timeout."""
        self.last_poll = clock.monotonic()
        """When a move was last answered, by the monotonic clock."""
        self._clock = clock
        self._processing = processing
        self._queues = queues
        self._timeout = timeout
        self._brought = brought
        self._over = over
        self._links = [Link(clients, f"fetchbox-move-{name}", (), timeout + BLOCK_MARGIN) for _ in queues]
        self._moves: dict[int, asyncio.Task[None]] = {}
        self._ids: dict[int, tuple[int, int]] = {}
        """Of each queue: which connection it was, and its id at the server."""

    @property
    def connects(self) -> int:
        """How often a connection was made; a change means that a job may have been brought to nobody."""
        return sum(link.connects for link in self._links)

    def begin(self, queues: Iterable[int]) -> None:
        """Waits at these queues, where nobody does yet."""
        for queue in queues:
            if queue not in self._moves:
                self._moves[queue] = asyncio.create_task(self._wait_at(queue), name="list-move")

    async def rest(self, link: Link) -> None:
        """Lets the moves that are under way come home: the server is told, by this link, to wait no longer."""
        moves = dict(self._moves)
        if not moves:
            return
        unblock = [("CLIENT", "UNBLOCK", self._ids[queue][1]) for queue in moves if queue in self._ids]
        if unblock:
            with suppress(PipeLost):
                await link.run(unblock)
        await asyncio.wait(moves.values(), timeout=self._timeout + 1)

    async def drop(self) -> None:
        """Ends all moves at once; what Redis has given to them is found by the reconciliation."""
        moves = list(self._moves.values())
        for move in moves:
            await ended(move)
        for link in self._links:
            link.close()

    async def _wait_at(self, queue: int) -> None:
        try:
            job, failed = await self._once(queue)
            while job is None and not failed and self.waited_for:
                job, failed = await self._once(queue)
        finally:
            del self._moves[queue]
        if job is not None:
            self._brought(queue, job)
        else:
            self._over(failed)

    async def _once(self, queue: int) -> tuple[bytes | None, bool]:
        """One move: its job, and whether it failed."""
        move = ("BLMOVE", self._queues[queue], self._processing, "RIGHT", "LEFT", self._timeout)
        link = self._links[queue]
        try:
            if self._ids.get(queue, (0, 0))[0] != link.connects or not link.connects:
                (reply,) = await link.run([("CLIENT", "ID")])
                self._ids[queue] = (link.connects, reply if isinstance(reply, int) else 0)
            (reply,) = await link.run([move], self._timeout + BLOCK_MARGIN)
        except PipeLost as lost:
            _log.warn("list_move_lost", error=str(lost), queue=self._queues[queue])
            return None, True
        if is_error(reply):
            _log.error("list_move_refused", error=str(reply), queue=self._queues[queue])
            await self._clock.sleep(_PAUSE)
            return None, True
        self.last_poll = self._clock.monotonic()
        return reply, False
