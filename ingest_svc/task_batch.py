"""Many orders at once: each as `TaskCreator` makes one, at a part of the cost, or all of them or none.

The jobs of a batch go to the queue together, and so do the claims of their idempotency keys. A key that stands twice in
a batch is claimed once: equal orders under it have one job. What is not the usual case (a key whose job another submit
makes, or has left unfinished) goes the way of a single order.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from fetchbox.errors.v1 import errors_pb2
from fetchbox.task.v1.job_pb2 import Job
from ingest_svc.idempotency import BegunSubmit, KeyClaim, SubmitBatches
from ingest_svc.once import conflict
from ingest_svc.publication import Reached
from ingest_svc.task_creation import TaskCreator, as_seen, claim_of, job_of, kept, tell
from ingest_svc.task_order import TaskOrder
from kernel.auth import Caller
from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.ledger.task_queue import TaskQueue
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("ingest.batches")
Outcome = Job | FetchboxError
_RENEWALS = 3
"""How often leases are renewed while they last."""
_GIVEN_BACK_MS = 1


class BatchCreator:
    """Makes the jobs of checked orders, each whatever becomes of the others."""

    def __init__(
        self,
        creator: TaskCreator,
        submits: SubmitBatches,
        queue: TaskQueue,
        lease: float,
        clock: Clock,
        reached: Reached,
    ) -> None:
        self._creator = creator
        self._submits = submits
        self._queue = queue
        self._lease = lease
        self._clock = clock
        self._reached = reached

    async def create(self, orders: Sequence[TaskOrder], caller: Caller) -> list[Outcome]:
        """For each order its job, without payload, or the error that a call of its own would have come to."""
        found: list[Outcome | None] = [None] * len(orders)
        leaders = leaders_of(orders)
        plain = [place for place, order in enumerate(orders) if not order.idempotency_key]
        keyed = [place for place, leader in leaders.items() if place == leader]
        await asyncio.gather(self._plain(orders, plain, found), self._keyed(orders, keyed, found, caller))
        late = []
        for place, leader in leaders.items():
            if place != leader and orders[place].digest == orders[leader].digest:
                found[place] = found[leader]
                metrics.JOBS_REPEATED.inc()
            elif place != leader:
                late.append(place)
        await self._singly(orders, late, found, caller)
        return [outcome for outcome in found if outcome is not None]

    async def _plain(self, orders: Sequence[TaskOrder], places: Sequence[int], found: list[Outcome | None]) -> None:
        made = await self._queue.create_many([(orders[place].new, None) for place in places]) if places else []
        self._note(orders, places, made, found)

    async def _keyed(
        self, orders: Sequence[TaskOrder], places: Sequence[int], found: list[Outcome | None], caller: Caller
    ) -> None:
        """The first order under each key."""
        if not places:
            return
        claims = [claim_of(orders[place]) for place in places]
        begun = await self._begun(claims)
        self._reached("claimed")
        fresh, others = [], []
        for place, claim, one in zip(places, claims, begun, strict=True):
            if isinstance(one, FetchboxError):
                found[place] = as_seen(one, orders[place].idempotency_key)
            elif one is not None and one.state == "done":
                found[place] = Job.FromString(one.answer)
                metrics.JOBS_REPEATED.inc()
            elif one is not None and one.state == "conflict":
                found[place] = conflict(one.job_id)
            elif one is not None and one.state == "new":
                fresh.append((place, claim))
            else:
                others.append(place)
        await asyncio.gather(self._fresh(orders, fresh, found), self._singly(orders, others, found, caller))

    async def _begun(self, claims: Sequence[KeyClaim]) -> Sequence[BegunSubmit | FetchboxError | None]:
        try:
            return await self._submits.begin(claims, int(self._lease * 1000))
        except FetchboxError as error:
            return [error] * len(claims)

    async def _fresh(
        self, orders: Sequence[TaskOrder], held: Sequence[tuple[int, KeyClaim]], found: list[Outcome | None]
    ) -> None:
        """Makes the jobs of keys that nobody has used before."""
        if not held:
            return
        wanted = [(new, kept(new, claim.name)) for place, claim in held for new in (orders[place].new,)]
        async with self.holding([claim for _, claim in held]):
            made = await self._queue.create_many(wanted)
        self._reached("queued")
        self._note(orders, [place for place, _ in held], made, found)
        failed = [(one[1], error) for one, error in zip(held, made, strict=True) if isinstance(error, Exception)]
        await self.forget([claim for claim, error in failed if _is_refused(error)])
        await self.give_back([claim for claim, error in failed if not _is_refused(error)])

    def _note(
        self,
        orders: Sequence[TaskOrder],
        places: Sequence[int],
        made: Sequence[int | Exception],
        found: list[Outcome | None],
    ) -> None:
        tell(*(orders[place].new for place, outcome in zip(places, made, strict=True) if isinstance(outcome, int)))
        for place, outcome in zip(places, made, strict=True):
            found[place] = _outcome(orders[place], outcome)

    async def _singly(
        self, orders: Sequence[TaskOrder], places: Sequence[int], found: list[Outcome | None], caller: Caller
    ) -> None:
        made = await asyncio.gather(
            *(self._creator.create(orders[place], caller) for place in places), return_exceptions=True
        )
        for place, outcome in zip(places, made, strict=True):
            if isinstance(outcome, Job):
                outcome.ClearField("payload")
                found[place] = outcome
            else:
                found[place] = error_of(outcome)

    @asynccontextmanager
    async def holding(self, claims: Sequence[KeyClaim]) -> AsyncIterator[None]:
        """Renews the leases of claims meanwhile."""
        keeper = asyncio.create_task(self._keep(claims), name="batch-leases")
        try:
            yield
        finally:
            keeper.cancel()

    async def forget(self, claims: Sequence[KeyClaim]) -> None:
        """Frees keys whose jobs will not be made."""
        with suppress(FetchboxError):
            if claims:
                await self._submits.forget(claims)

    async def give_back(self, claims: Sequence[KeyClaim]) -> None:
        """Ends the leases of keys: whoever comes next takes their jobs over at once."""
        with suppress(FetchboxError):
            if claims:
                await self._submits.begin(claims, _GIVEN_BACK_MS)

    async def _keep(self, claims: Sequence[KeyClaim]) -> None:
        while True:
            await self._clock.sleep(self._lease / _RENEWALS)
            with suppress(FetchboxError):
                await self._submits.begin(claims, int(self._lease * 1000))


def leaders_of(orders: Sequence[TaskOrder]) -> dict[int, int]:
    """By the place of each order with a key that of the first one with the same key."""
    first: dict[str, int] = {}
    keyed = ((place, order.idempotency_key) for place, order in enumerate(orders) if order.idempotency_key)
    return {place: first.setdefault(key, place) for place, key in keyed}


def _outcome(order: TaskOrder, made: int | Exception) -> Outcome:
    if isinstance(made, int):
        return job_of(order.new, made)
    error = error_of(made)
    return as_seen(error, order.idempotency_key)


def error_of(error: BaseException) -> FetchboxError:
    """The error of one order; what nobody expected is told with its stack, and tells its client nothing."""
    if isinstance(error, FetchboxError):
        return error
    log.exception("batch_failed", error)  # noqa: LOG004, PLE1205 - our own logger, which takes the error itself
    return FetchboxError(errors_pb2.REASON_INTERNAL_ERROR, "FetchBox failed; its log has the details")


def _is_refused(outcome: object) -> bool:
    return isinstance(outcome, FetchboxError) and outcome.reason == errors_pb2.REASON_RATE_LIMITED
