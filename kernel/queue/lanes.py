"""Both lanes of a worker as one: its slots are for whatever there is to do.

Where both lanes have work each gets half of the slots. A lane that has nothing costs the other
nothing: the queues of file jobs are waited at by blocked moves, the streams by a blocking read, and neither is asked
before it answers. A job that may have killed its process runs with nothing else beside it, from whichever lane it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from kernel.clock import Clock
from kernel.queue.files.lane import SURPLUS_SECONDS, ListLane
from kernel.queue.streams.reader import ANSWER
from kernel.queue.streams.worker import WorkerLane
from kernel.queue.work.types import Claim, Outcome, Settled
from kernel.redis.pipe import PipeLost
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

_BREATH = 0.02
_log = get_logger(__name__)


class Lost:
    """Set while either lease has lapsed."""

    def __init__(self, *events: asyncio.Event) -> None:
        self._events = events

    def is_set(self) -> bool:
        """Whether it is now."""
        return any(event.is_set() for event in self._events)

    async def wait(self) -> None:
        """Until it is."""
        waits = [asyncio.ensure_future(event.wait()) for event in self._events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                await ended(one)


class Lanes:
    """The stream lane and the list lane of one worker."""

    def __init__(self, stream: WorkerLane, lists: ListLane, clock: Clock, block: float) -> None:
        """`block`, in seconds, is the longest read of the streams."""
        self.stream = stream
        self.lists = lists
        self.lost = Lost(stream.lost, lists.lost)
        self._clock = clock
        self._block = block
        self._solo = lists.solo = stream.solo
        stream.neighbours = lambda: lists.busy
        lists.neighbours = lambda: stream.busy
        lists.stirred = self._stir
        self._stirred: asyncio.Future[None] | None = None
        self._turn = 0
        self._ahead = 0  # by how many the files are, since both lanes have work
        self._returned_at = clock.monotonic()

    @property
    def worker_id(self) -> str:
        """The worker."""
        return self.stream.worker_id

    @property
    def last_poll_age(self) -> float:
        """Seconds since Redis last answered a request for work, of the lane that has waited longer."""
        return max(self.stream.last_poll_age, self.lists.last_poll_age)

    async def start(self) -> None:
        """Begins both leases. Raises `UNAVAILABLE` where Redis does not answer."""
        await self.stream.start()
        try:
            await self.lists.start()
        except BaseException:
            await self.stream.stop()
            raise

    async def stop(self) -> None:
        """Gives back what is left and leaves both. Safe twice."""
        await asyncio.gather(self.stream.stop(), self.lists.stop())

    # Claims.

    async def claim(self, limit: int, wait: float) -> list[Claim]:
        """Up to `limit` of whatever there is to do; waits up to `wait` seconds for the first. Safe to cancel."""
        ends = self._clock.monotonic() + wait
        self.lists.wait_on(1)
        try:
            while True:
                claims = await self._attempt(limit, max(0.0, ends - self._clock.monotonic()))
                if claims or self._clock.monotonic() >= ends:
                    return claims
        finally:
            self.lists.wait_on(-1)

    async def _attempt(self, limit: int, wait: float) -> list[Claim]:
        stream, lists = self.stream, self.lists
        suspects = stream.suspects + lists.suspects
        if suspects and self._solo.wanted(suspects, busy=stream.busy or lists.busy):
            return await self._alone(wait)
        if lists.quiet or not lists.alive:
            self._ahead = 0
            return await stream.claim(limit, wait, self._until_stirred())
        if stream.quiet:
            self._ahead = 0
            return await lists.claim(limit, 0)
        return await self._halves(limit)

    async def _halves(self, limit: int) -> list[Claim]:
        """Half from each, and what one lacks from the other, which is made up for while both have work.

        The streams are asked first and answered last: both answers come at the same time.
        """
        half = min(limit, max(0, (limit - self._ahead) // 2))
        self.stream.begin(max(1, limit - half), self._block)
        files = await self.lists.claim(half, 0) if half else []
        tasks: list[Claim] = []
        if len(files) < limit:
            tasks = await self.stream.poll(limit - len(files), self._block, 0.0 if half else ANSWER)
        self._ahead = max(-limit, min(limit, self._ahead + len(files) - len(tasks)))
        return files + tasks

    async def _alone(self, wait: float) -> list[Claim]:
        """One suspect of either lane, once nothing runs here; until then, and while it runs, nothing."""
        if self.stream.busy or self.lists.busy:
            await self._clock.sleep(min(wait, _BREATH))
            await self._return_now_and_then()
            return []
        self._turn ^= 1
        lanes = (self.stream, self.lists) if self._turn else (self.lists, self.stream)
        try:
            for lane in lanes:
                claims = await lane.alone()
                if claims is not None:
                    return claims
        except PipeLost as lost:
            _log.warn("lane_claim_lost", error=str(lost))
            await self._clock.sleep(min(wait, _BREATH))
            return []
        self._solo.nothing()
        return []

    async def _return_now_and_then(self) -> None:
        """What comes while a suspect runs is for others."""
        now = self._clock.monotonic()
        if now - self._returned_at >= SURPLUS_SECONDS:
            self._returned_at = now
            await self.return_surplus()

    def _until_stirred(self) -> asyncio.Future[None]:
        """Is done when there is something in the lists."""
        if self._stirred is None or self._stirred.done():
            self._stirred = asyncio.get_running_loop().create_future()
        return self._stirred

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    # What is given up.

    @property
    def surplus(self) -> int:
        """How much waits here for the next claim, or may come for it, while other workers may be idle."""
        return self.stream.surplus + self.lists.surplus

    async def return_surplus(self) -> None:
        """Gives it back; that costs neither an attempt nor a crash. Raises `UNAVAILABLE`."""
        if self.stream.surplus:
            await self.stream.return_surplus()
        if self.lists.surplus:
            await self.lists.return_surplus()

    async def give_back(self, claims: Iterable[Claim]) -> None:
        """Returns claims unrun; that costs them neither an attempt nor a crash. Raises `UNAVAILABLE`."""
        tasks, files = _parted(claims)
        await asyncio.gather(self.stream.give_back(tasks), self.lists.give_back(files))

    # Outcomes.

    def settle(self, claim: Claim, outcome: Outcome) -> asyncio.Future[Settled]:
        """Records the outcome of a claim."""
        return self.lists.settle(claim, outcome) if claim.queue else self.stream.settle(claim, outcome)

    def holds(self, claim: Claim) -> bool:
        """Whether the claim is still ours: its lease has not lapsed since."""
        return self.lists.holds(claim) if claim.queue else self.stream.holds(claim)

    async def reconcile(self, running: Collection[Claim]) -> int:
        """Gives back what the server counts as ours and nobody here runs; returns how many."""
        tasks, files = _parted(running)
        return sum(await asyncio.gather(self.stream.reconcile(tasks), self.lists.reconcile(files)))


def _parted(claims: Iterable[Claim]) -> tuple[list[Claim], list[Claim]]:
    """Those of the streams, and those of the lists."""
    tasks: list[Claim] = []
    files: list[Claim] = []
    for claim in claims:
        (files if claim.queue else tasks).append(claim)
    return tasks, files
