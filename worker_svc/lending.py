"""Work lent to workers elsewhere: resources to fetch, and the tasks of seed 004 that are configured as `remote`.

A lane of its own claims it; each claim is then moved to the remote worker's consumer, under that worker's lease. To
settle one, it is moved back and settled as any other: what the ledger does with an outcome is the same for every
worker. A lease that lapses leaves its work to the reaper, as a crash does.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from kernel import keys
from kernel.clock import Clock
from kernel.errors import FetchboxError, Violation, failure_name, invalid
from kernel.handlers import StoredObject
from kernel.lanes.lending import LendingLane
from kernel.lanes.lent import Lent
from kernel.lanes.remote import FENCED, RemoteLeases
from kernel.lanes.types import Claim, Failure, Outcome, Success
from kernel.ledger.record import FETCH
from kernel.telemetry.logs import get_logger
from worker_svc.results import failed_line, stored_line
from worker_svc.told import events_of, result_of
from worker_svc.waiting import LOOK_SECONDS, Waiting

log = get_logger("worker.lending")

SURPLUS_SECONDS = 1.0
"""How long a task that was delivered beyond what was asked for waits for the next remote worker."""
_SLICE_SECONDS = 0.5
"""How long one remote worker waits at the lane before the next has its turn."""
_ANSWER_BYTES = 3 << 20
"""Clients of gRPC take messages of up to 4 MB unless they are told otherwise."""
Named = tuple[str, DownloadTask | QueuedTask]
"""The name of a claim and its work."""
_Claims = TypeVar("_Claims", list[Claim], "list[Claim] | None")
_CANCELED = failure_name(errors_pb2.FAILURE_CODE_SYSTEM_CANCELED)


class Lending:
    """What `ClaimTasks`, `Heartbeat`, `ReportEvents`, `CompleteTask` and `FailTask` do, as one duty of the service."""

    name = "lending"

    def __init__(
        self,
        config: Config,
        lane: LendingLane,
        lane_id: str,
        leases: RemoteLeases,
        waiting: Waiting,
        clock: Clock,
        *,
        remote: Collection[str],
        deadline: Callable[[Claim], float],
        late: Callable[[Claim, float], Failure],
        final_due: Callable[[], None],
    ) -> None:
        """`lane_id` is the worker id of `lane`; `remote` are the tasks of seed 004 that are lent.

        `deadline` is that of one attempt at a claim, in seconds, and `late` words the failure of one that took longer;
        `final_due` is called when a job is to be ended.
        """
        self._lane = lane
        self._lane_id = lane_id
        self._leases = leases
        self._waiting = waiting
        self._clock = clock
        self._remote = remote
        self._deadline = deadline
        self._late = late
        self._final_due = final_due
        self._max_result = config.tasks.max_result_bytes
        self._max_events = config.tasks.max_events
        self._most_tasks = max(1, _ANSWER_BYTES // config.tasks.max_payload_bytes)
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
        await self._waiting.stop()
        await self._lane.stop()

    async def tidy(self) -> None:
        """Gives back the surplus of claims when no remote worker has come for it, and what nobody knows of."""
        if self._lane.surplus and self._clock.monotonic() - self._claimed_at > SURPLUS_SECONDS:
            await self._lane.return_surplus()
        await self._lane.agree()

    async def claim(self, worker_id: str, limit: int, wait: float, kinds: Sequence[str] = ()) -> list[Named]:
        """Up to `limit` claims, by name; waits up to `wait` seconds for the first.

        `kinds` are tasks of seed 004, and `fetch` for resources; none means `fetch`. `INVALID_PAYLOAD` for a task that
        workers elsewhere do not run.
        """
        tasks = self._tasks_of(kinds)
        fetches = FETCH in kinds or not kinds
        end = self._clock.monotonic() + wait
        while self._open:
            consumer = await self._leases.join(worker_id)
            left = max(0.0, end - self._clock.monotonic())
            lent = await self._some(consumer, limit, min(left, _SLICE_SECONDS), tasks, fetches=fetches)
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
        over = [one for one in held if one.claim.job_id in ended]
        late = [one for one in held if one not in over and one.held_ms > self._deadline(one.claim) * 1000]
        for one in late:
            await self._end(one.lent, lambda claim: self._late(claim, self._deadline(claim)))
        for one in over:
            if one.ended_ms is not None and one.ended_ms > self._leases.ttl_ms:  # it was told, and settles nothing
                await self._end(one.lent, lambda _: Failure(_CANCELED, "the job has ended"))
        return [one.lent.name() for one in (*over, *late)]

    async def report(self, worker_id: str, name: str, first: int, events: Sequence[tuple[str, bytes]]) -> None:
        """Writes events of a claim of seed 004, type and data of each, numbered on from `first`; repeated, none twice.

        `INVALID_PAYLOAD` for what can be no event, `GONE` where the claim is lost or its job has ended.
        """
        lent = self._lent(worker_id, name)
        if not lent.job_id:
            raise invalid("only tasks of seed 004 have events")
        events_of(events, first, self._max_events)
        work = QueuedTask(job_id=lent.job_id)
        claim = Claim(lent.partition, lent.entry, b"", work, lent.token, lent.attempt, lent.crashes)
        if not (await self._leases.holds(lent) and await self._lane.tell(claim, first, events)):
            _gone("the claim is lost, or its job has ended: stop the work")

    async def complete(self, worker_id: str, name: str, stored: StoredObject) -> str:
        """Settles the claim of a resource as done; the word of `SettleTaskResponse.outcome`."""
        lent = self._lent(worker_id, name)
        if lent.job_id:
            raise _other_kind("object", "a task of seed 004: it is done with a `result`")
        return await self._end(lent, lambda claim: Success(stored_line(claim.task, claim.attempt + 1, stored)))

    async def complete_task(self, worker_id: str, name: str, result: bytes) -> str:
        """Settles the claim of a task of seed 004 as done; the word of `SettleTaskResponse.outcome`."""
        lent = self._lent(worker_id, name)
        if not lent.job_id:
            raise _other_kind("result", "a resource: it is done with an `object`")
        outcome = Success(result=result_of(result, self._max_result))
        return await self._end(lent, lambda _: outcome)

    async def fail(self, worker_id: str, name: str, code: str, message: str, retry_after: float | None) -> str:
        """Settles an attempt as failed; the word of `SettleTaskResponse.outcome`."""

        def failed(claim: Claim) -> Failure:
            fetched = claim.queued is None
            detail = failed_line(claim.task, claim.attempt + 1, code, message, {}) if fetched else b""
            return Failure(code, message, detail, retry_after)

        return await self._end(self._lent(worker_id, name), failed)

    def _tasks_of(self, kinds: Sequence[str]) -> list[str]:
        tasks = [kind for kind in dict.fromkeys(kinds) if kind != FETCH]
        for task in tasks:
            if task not in self._remote:
                problem = f"{task} is not run by workers elsewhere: tasks.{task}.handler is not `remote`"
                raise invalid(problem, [Violation(f"kinds[{list(kinds).index(task)}]", problem)])
        return tasks

    async def _some(
        self, consumer: str, limit: int, wait: float, tasks: Sequence[str], *, fetches: bool
    ) -> list[Named]:
        """Claims of the kinds that are wanted, within `wait` seconds."""
        end = self._clock.monotonic() + wait
        if self._remote and await self._leases.runs_alone(consumer):
            await self._clock.sleep(wait)
            return []
        if not tasks:
            return await self._resources(consumer, limit, wait)
        if wait == 0:
            await self._waiting.read(0)
        woken = False
        while True:
            lent = await self._tasks(consumer, limit, tasks)
            if fetches and not lent:
                # A read that blocks could not be left for a task: whoever wants both looks for resources now and then.
                lent = await self._resources(consumer, limit, 0)
            left = end - self._clock.monotonic()
            if lent or left <= 0:
                return lent
            if woken:  # for what another was faster to take, or must run alone and cannot yet
                await self._clock.sleep(min(left, LOOK_SECONDS))
            with self._waiting.expecting(tasks) as expected:
                await asyncio.wait({expected}, timeout=min(left, LOOK_SECONDS) if fetches else left)
                woken = expected.done()

    async def _resources(self, consumer: str, limit: int, wait: float) -> list[Named]:
        async with self._turn:
            self._claimed_at = self._clock.monotonic()
            claims = await self._whole(self._lane.claim(limit, wait))
        return await self._hand_over(consumer, claims or [])

    async def _tasks(self, consumer: str, limit: int, tasks: Sequence[str]) -> list[Named]:
        most = min(limit, self._most_tasks)
        claims = await self._whole(self._lane.collect(tasks, most, empty=False))
        if claims is None and await self._leases.is_empty(consumer):
            claims = await self._whole(self._lane.collect(tasks, most))
        return await self._hand_over(consumer, claims or [])

    async def _whole(self, claims: Coroutine[Any, Any, _Claims]) -> _Claims:
        """A claim that is not cut short when its caller hangs up: what it brings then goes back."""
        claiming = asyncio.ensure_future(claims)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await self._lane.give_back(await claiming or [])
            raise

    async def _hand_over(self, consumer: str, claims: Sequence[Claim]) -> list[Named]:
        lent: list[Claim] = []
        try:
            lent = await self._lend(consumer, [claim for claim in claims if _is_lent(claim)])
        finally:
            # A caller that has hung up, a lease that has lapsed meanwhile, a resource that must run alone.
            kept = {id(claim) for claim in lent}
            rest = [claim for claim in claims if id(claim) not in kept]
            if rest:
                await asyncio.shield(self._lane.give_back(rest))
        return [(_named(consumer, claim).name(), _as_lent(claim)) for claim in lent]

    async def _lend(self, consumer: str, claims: Sequence[Claim]) -> list[Claim]:
        together: dict[tuple[int, bool], list[Claim]] = defaultdict(list)
        for claim in claims:
            together[claim.partition, claim.solo].append(claim)
        lent = []
        for (partition, solo), some in together.items():
            ids = [claim.entry for claim in some]
            origin, to = (keys.solo(self._lane_id), keys.solo(consumer)) if solo else (self._lane_id, consumer)
            moved = await self._leases.transfer(consumer, origin, to, partition, ids) or []
            lent += [claim for claim, is_moved in zip(some, moved, strict=False) if is_moved]
        self._lane.lend(lent)
        return lent

    def _lent(self, worker_id: str, name: str) -> Lent:
        lent = Lent.of(name)
        if lent is None or not lent.belongs_to(worker_id) or not self._leases.knows(lent):
            raise invalid(f"this is no claim of {worker_id}")
        return lent

    async def _end(self, lent: Lent, worded: Callable[[Claim], Outcome]) -> str:
        """Takes the work back and settles it. What is not held any more was settled before, and is told so."""
        recorded = await self._leases.outcome_of(lent) if lent.job_id else ""
        if recorded == FENCED:  # the entry may be the worker's all the same, for a later attempt
            return recorded
        claim = await self._leases.claim_of(lent)
        if claim is None and not lent.job_id:
            _gone("the task of this claim is no longer kept")
        moved = await self._leases.transfer(lent.holder, lent.consumer, self._lane_id, lent.partition, [lent.entry])
        if moved is None:
            _gone("the lease of this claim has lapsed; another worker may have the task")
        if claim is None or (lent.job_id and not moved[0]):
            return recorded or _gone("this claim is lost; another worker may have the task")
        settled = await self._lane.settle(self._lane.adopt(claim), worded(claim))
        if settled.final_due:
            self._final_due()
        return settled.outcome


def _is_lent(claim: Claim) -> bool:
    """Resources that must run alone are for the slots."""
    return claim.queued is not None or not claim.solo


def _named(consumer: str, claim: Claim) -> Lent:
    holder = keys.solo(consumer) if claim.solo else consumer
    job_id = claim.job_id if claim.queued is not None else ""
    return Lent(holder, claim.partition, claim.entry, claim.token, claim.attempt, claim.crashes, job_id)


def _as_lent(claim: Claim) -> DownloadTask | QueuedTask:
    work = DownloadTask() if claim.queued is None else QueuedTask()
    work.CopyFrom(claim.work)  # type: ignore[arg-type]  # both are of the same kind
    work.attempt = claim.attempt
    return work


def _other_kind(field: str, rule: str) -> FetchboxError:
    return invalid(f"this claim is of {rule}", [Violation(field, f"the claim is of {rule}")])


def _gone(message: str) -> NoReturn:
    raise FetchboxError(errors_pb2.REASON_GONE, message)
