"""Tasks lent to workers elsewhere.

A lane of its own claims them; each is then moved to the remote worker's consumer, under that worker's lease. To settle
one, it is moved back and settled as any other: what the ledger does with an outcome is the same for every worker. A
lease that lapses leaves its tasks to the reaper, as a crash does.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NoReturn

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.clock import Clock
from kernel.errors import FetchboxError, invalid
from kernel.handlers import StoredObject
from kernel.lanes.remote import Lent, RemoteLeases
from kernel.lanes.types import Claim, Failure, Outcome, Success
from kernel.lanes.worker import LendingLane
from kernel.telemetry.logs import get_logger
from worker_svc.results import failed_line, stored_line

log = get_logger("worker.lending")

SURPLUS_SECONDS = 1.0
"""How long a task that was delivered beyond what was asked for waits for the next remote worker."""
_SLICE_SECONDS = 0.5
"""How long one remote worker waits at the lane before the next has its turn."""


class Lending:
    """What `ClaimTasks`, `Heartbeat`, `CompleteTask` and `FailTask` do, as one duty of the service."""

    name = "lending"

    def __init__(
        self,
        lane: LendingLane,
        lane_id: str,
        leases: RemoteLeases,
        clock: Clock,
        deadline: float,
        *,
        late: Callable[[Claim, float], Failure],
        final_due: Callable[[], None],
    ) -> None:
        """`lane_id` is the worker id of `lane`; `deadline`, in seconds, is that of one attempt.

        `late` words the failure of an attempt over its deadline; `final_due` is called when a job is to be ended.
        """
        self._lane = lane
        self._lane_id = lane_id
        self._leases = leases
        self._clock = clock
        self._deadline = deadline
        self._late = late
        self._final_due = final_due
        self._turn = asyncio.Lock()
        self._claimed_at = clock.monotonic()
        self._open = False

    @property
    def lease_seconds(self) -> float:
        """How long a remote worker's lease lasts without a heartbeat."""
        return self._leases.ttl_ms / 1000

    async def start(self) -> None:
        """Takes the lease under which tasks are claimed and settled for others."""
        await self._lane.start()
        self._open = True

    async def drain(self, grace: float) -> None:  # noqa: ARG002 - nothing runs here that a grace could help
        """Lends nothing more; what is lent can still be settled."""
        self._open = False

    async def stop(self) -> None:
        """Ends the lease; safe to call twice, and without a start. What is lent can be settled elsewhere."""
        self._open = False
        await self._lane.stop()

    async def tidy(self) -> None:
        """Gives back the surplus of claims when no remote worker has come for it."""
        if self._lane.surplus and self._clock.monotonic() - self._claimed_at > SURPLUS_SECONDS:
            await self._lane.return_surplus()

    async def claim(self, worker_id: str, limit: int, wait: float) -> list[tuple[str, DownloadTask]]:
        """Up to `limit` claims, by name; waits up to `wait` seconds for the first."""
        end = self._clock.monotonic() + wait
        while self._open:
            consumer = await self._leases.join(worker_id)
            left = max(0.0, end - self._clock.monotonic())
            lent = await self._claim_once(consumer, limit, min(left, _SLICE_SECONDS))
            if lent or left == 0:
                return lent
        return []

    async def heartbeat(self, worker_id: str) -> list[str]:
        """Renews the lease; the names of claims whose job has ended, or whose attempt is over its deadline."""
        consumers = await self._leases.renew(worker_id)
        if not consumers:
            _gone(f"the lease of {worker_id} had lapsed: stop its work and claim anew")
        held = [one for consumer in consumers for one in await self._leases.held(consumer)]
        ended = await self._lane.canceled({one.claim.job_id for one in held})
        late = [one for one in held if one.held_ms > self._deadline * 1000]
        for one in late:
            await self._settle(one.lent, one.claim, self._late(one.claim, self._deadline))
        return [one.lent.name() for one in held if one in late or one.claim.job_id in ended]

    async def report(self, worker_id: str, name: str, first: int, events: Sequence[tuple[str, bytes]]) -> None:
        """Writes events of a claim of seed 004, type and data of each, numbered on from `first`."""
        _, claim = await self._claimed(worker_id, name)
        if claim.queued is None:
            raise invalid("only tasks of seed 004 have events")
        if not await self._lane.report(self._lane.adopt(claim), first, events):
            _gone("the claim is lost, or its job was canceled: stop the work")

    async def complete(self, worker_id: str, name: str, stored: StoredObject) -> str:
        """Settles a claim as done; the word of `SettleTaskResponse.outcome`."""
        lent, claim = await self._claimed(worker_id, name)
        return await self._settle(lent, claim, Success(stored_line(claim.task, claim.attempt + 1, stored)))

    async def fail(self, worker_id: str, name: str, code: str, message: str, retry_after: float | None) -> str:
        """Settles an attempt as failed; the word of `SettleTaskResponse.outcome`."""
        lent, claim = await self._claimed(worker_id, name)
        detail = failed_line(claim.task, claim.attempt + 1, code, message, {})
        return await self._settle(lent, claim, Failure(code, message, detail, retry_after))

    async def _claim_once(self, consumer: str, limit: int, wait: float) -> list[tuple[str, DownloadTask]]:
        async with self._turn:
            claims = await self._whole_claim(limit, wait)
        lent: list[Claim] = []
        try:
            lent = await self._lend(consumer, [claim for claim in claims if not claim.solo])
        finally:
            # A caller that has hung up, a lease that has lapsed meanwhile, a task that must run alone.
            kept = {id(claim) for claim in lent}
            rest = [claim for claim in claims if id(claim) not in kept]
            if rest:
                await asyncio.shield(self._lane.give_back(rest))
        return [(self._name(consumer, claim), _as_lent(claim)) for claim in lent]

    async def _whole_claim(self, limit: int, wait: float) -> list[Claim]:
        """A claim that is not cut short when its caller hangs up: what it brings then goes back."""
        self._claimed_at = self._clock.monotonic()
        claiming = asyncio.ensure_future(self._lane.claim(limit, wait))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await self._lane.give_back(await claiming)
            raise

    async def _lend(self, consumer: str, claims: list[Claim]) -> list[Claim]:
        by_partition: dict[int, list[Claim]] = defaultdict(list)
        for claim in claims:
            by_partition[claim.partition].append(claim)
        lent = []
        for partition, some in by_partition.items():
            ids = [claim.entry for claim in some]
            moved = await self._leases.transfer(consumer, self._lane_id, consumer, partition, ids) or []
            lent += [claim for claim, is_moved in zip(some, moved, strict=False) if is_moved]
        self._lane.lend(lent)
        return lent

    def _name(self, consumer: str, claim: Claim) -> str:
        return Lent(consumer, claim.partition, claim.entry, claim.token, claim.attempt, claim.crashes).name()

    async def _claimed(self, worker_id: str, name: str) -> tuple[Lent, Claim]:
        lent = Lent.of(name)
        if lent is None or not lent.belongs_to(worker_id):
            raise invalid(f"this is no claim of {worker_id}")
        claim = await self._leases.claim_of(lent)
        if claim is None:
            _gone("the task of this claim is no longer kept")
        return lent, claim

    async def _settle(self, lent: Lent, claim: Claim, outcome: Outcome) -> str:
        """Takes the task back and settles it. One that is not held any more was settled before, and is told so."""
        moved = await self._leases.transfer(lent.consumer, lent.consumer, self._lane_id, lent.partition, [lent.entry])
        if moved is None:
            _gone("the lease of this claim has lapsed; another worker may have the task")
        settled = await self._lane.settle(self._lane.adopt(claim), outcome)
        if settled.final_due:
            self._final_due()
        return settled.outcome


def _as_lent(claim: Claim) -> DownloadTask:
    task = DownloadTask()
    task.CopyFrom(claim.task)
    task.attempt = claim.attempt
    return task


def _gone(message: str) -> NoReturn:
    raise FetchboxError(errors_pb2.REASON_GONE, message)
