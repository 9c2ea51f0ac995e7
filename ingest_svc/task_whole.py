"""All jobs of a batch or none: nothing is made where one idempotency key stands for something else, or room is short.

Every key is claimed before anything is made. Where another submit holds one, all claims are given back before this one
waits: two batches that share keys cannot wait for each other. The queue then admits all jobs in one step. A process
that dies while they are made leaves some of them; the same batch with the same keys makes the others.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fetchbox.errors.v1 import errors_pb2
from fetchbox.task.v1.job_pb2 import Job
from ingest_svc.idempotency import BegunSubmit, KeyClaim, SubmitBatches
from ingest_svc.once import conflict
from ingest_svc.publication import Reached
from ingest_svc.task_batch import BatchCreator, leaders_of
from ingest_svc.task_creation import TaskCreator, as_seen, claim_of, job_of, kept, tell
from ingest_svc.task_order import TaskOrder
from kernel.auth import Caller
from kernel.clock import Clock
from kernel.errors import FetchboxError, unavailable
from kernel.ledger import Ledger
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.telemetry import metrics

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25
_PATIENCE = 2
"""How many leases a batch waits for others."""
_MINE = frozenset({"new", "taken_over"})


def at(error: FetchboxError, place: int) -> FetchboxError:
    """The error of one order of a batch, with its place."""
    where = f"requests[{place}]"
    violations = tuple(replace(one, field=f"{where}.{one.field}") for one in error.violations)
    joint = "." if error.violations else ": "
    return replace(error, message=f"{where}{joint}{error.message}", violations=violations)


@dataclass(slots=True)
class _Held:
    """A key of the batch, claimed."""

    place: int
    claim: KeyClaim
    begun: BegunSubmit


class WholeCreator:
    """Makes the jobs of checked orders together."""

    def __init__(
        self,
        batches: BatchCreator,
        creator: TaskCreator,
        submits: SubmitBatches,
        queue: TaskQueue,
        ledger: Ledger,
        lease: float,
        clock: Clock,
        reached: Reached,
    ) -> None:
        self._batches = batches
        self._creator = creator
        self._submits = submits
        self._queue = queue
        self._ledger = ledger
        self._lease = lease
        self._clock = clock
        self._reached = reached

    async def create(self, orders: Sequence[TaskOrder], caller: Caller) -> list[Job]:
        """The job of each order, without payload. Raises the first refusal, or that the outcome is open."""
        leaders = leaders_of(orders)
        for place, leader in leaders.items():
            if orders[place].digest != orders[leader].digest:
                problem = f"has the idempotency key of requests[{leader}], which is another request"
                raise at(FetchboxError(errors_pb2.REASON_IDEMPOTENCY_CONFLICT, problem), place)
        keyed = [place for place, leader in leaders.items() if place == leader]
        plain = [place for place, order in enumerate(orders) if not order.idempotency_key]
        try:
            jobs = await self._all(orders, plain, keyed, caller)
        except FetchboxError as error:
            raise as_seen(error, "each" if len(leaders) == len(orders) else "") from error
        for place, leader in leaders.items():
            if place != leader:
                jobs[place] = jobs[leader]
                metrics.JOBS_REPEATED.inc()
        return [jobs[place] for place in range(len(orders))]

    async def _all(
        self, orders: Sequence[TaskOrder], plain: Sequence[int], keyed: Sequence[int], caller: Caller
    ) -> dict[int, Job]:
        held = await self._held([(place, claim_of(orders[place])) for place in keyed]) if keyed else []
        self._reached("claimed")
        mine = [one for one in held if one.begun.state in _MINE]
        try:
            jobs = await self._known(orders, held, caller)
            wanted = {place: orders[place].new for place in plain}
            wanted |= {one.place: _named(orders[one.place].new, one.begun.job_id) for one in mine}
            async with self._batches.holding([one.claim for one in mine]):
                await self._finish(wanted, mine, jobs)
                await self._make(wanted, mine, jobs)
        except FetchboxError as error:
            await self._give_back(mine, free=error.reason != errors_pb2.REASON_UNAVAILABLE)
            raise
        return jobs

    async def _make(self, wanted: dict[int, NewTask], mine: Sequence[_Held], jobs: dict[int, Job]) -> None:
        """Makes those that are not there yet."""
        names = {one.place: one.claim.name for one in mine}
        asked = [(new, kept(new, names[place]) if place in names else None) for place, new in wanted.items()]
        made = await self._queue.create_many(asked, whole=True) if asked else []
        self._reached("queued")
        failed: tuple[int, Exception] | None = None
        for (place, new), outcome in zip(wanted.items(), made, strict=True):
            if isinstance(outcome, Exception):
                failed = failed or (place, outcome)
            else:
                jobs[place] = job_of(new, outcome)
        tell(*(new for new, outcome in zip(wanted.values(), made, strict=True) if isinstance(outcome, int)))
        if failed is not None:
            raise failed[1]

    async def _finish(self, wanted: dict[int, NewTask], mine: Sequence[_Held], jobs: dict[int, Job]) -> None:
        """Ends what one who died has begun: its jobs are there, and need no room."""
        for one in mine:
            record = await self._ledger.get(one.begun.job_id) if one.begun.state == "taken_over" else None
            if record is None:
                continue
            new = replace(wanted.pop(one.place), ttl_s=record.ttl_s, trace_id=record.trace_id)
            created_ms = await self._queue.finish(new, record.created_ms, kept(new, one.claim.name))
            tell(new)
            jobs[one.place] = job_of(new, created_ms)

    async def _known(self, orders: Sequence[TaskOrder], held: Sequence[_Held], caller: Caller) -> dict[int, Job]:
        """The jobs of keys that were used before; raises where one was used for another request."""
        jobs: dict[int, Job] = {}
        for one in held:
            if one.begun.state == "conflict":
                raise at(conflict(one.begun.job_id), one.place)
            if one.begun.state == "foreign":
                try:
                    jobs[one.place] = await self._creator.others(orders[one.place].new, one.begun.job_id, caller)
                except FetchboxError as error:
                    raise at(error, one.place) from error
                jobs[one.place].ClearField("payload")
            if one.begun.state == "done":
                jobs[one.place] = Job.FromString(one.begun.answer)
                metrics.JOBS_REPEATED.inc()
        return jobs

    async def _held(self, claims: Sequence[tuple[int, KeyClaim]]) -> list[_Held]:
        """Every key, none of them in the hands of another."""
        end = self._clock.monotonic() + _PATIENCE * self._lease
        pause = _FIRST_PAUSE
        while True:
            begun = await self._submits.begin([claim for _, claim in claims], int(self._lease * 1000))
            held = [_Held(place, claim, one) for (place, claim), one in zip(claims, begun, strict=True) if one]
            if len(held) == len(claims) and not any(one.begun.state == "running" for one in held):
                return held
            await self._give_back([one for one in held if one.begun.state in _MINE], free=True)
            place = next((place for (place, _), one in zip(claims, begun, strict=True) if one is None), None)
            if place is not None:
                problem = "the idempotency key is taken in Redis by something that is no submit"
                raise at(FetchboxError(errors_pb2.REASON_IDEMPOTENCY_CONFLICT, problem), place)
            if self._clock.monotonic() > end:
                raise unavailable("another submit with one of these idempotency keys has not ended yet.")
            await self._clock.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, hides nothing
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _give_back(self, mine: Sequence[_Held], *, free: bool) -> None:
        """Lets others have the keys; `free`: those that were new stand for nothing any more."""
        fresh = [one.claim for one in mine if free and one.begun.state == "new"]
        others = [one.claim for one in mine if not (free and one.begun.state == "new")]
        await asyncio.gather(self._batches.forget(fresh), self._batches.give_back(others))


def _named(new: NewTask, job_id: str) -> NewTask:
    return new if new.job_id == job_id else replace(new, job_id=job_id)
