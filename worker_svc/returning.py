"""What workers elsewhere say of what was lent to them: that they live, events, and how it went.

To settle a claim, its entry is moved back to the lane that lent it and settled as any other: what the ledger does with
an outcome is the same for every worker. Nothing is kept here, so any worker service can take any call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.errors import FetchboxError, Violation, failure_name, invalid
from kernel.handlers import StoredObject
from kernel.queue.streams.lending import LendingLane
from kernel.queue.streams.lent import Lent
from kernel.queue.streams.remote import FENCED, RemoteLeases
from kernel.queue.work.types import Claim, Failure, Outcome, Success
from worker_svc.endings import JobEndings
from worker_svc.results import failed_line, stored_line
from worker_svc.told import check_events, check_result

_CANCELED = failure_name(errors_pb2.FAILURE_CODE_SYSTEM_CANCELED)


class Returning:
    """What `Heartbeat`, `ReportEvents`, `CompleteTask` and `FailTask` do."""

    def __init__(
        self,
        config: Config,
        lane: LendingLane,
        leases: RemoteLeases,
        endings: JobEndings,
        *,
        deadline: Callable[[Claim], float],
        late: Callable[[Claim, float], Failure],
        final_due: Callable[[], None],
    ) -> None:
        """`deadline` is that of one attempt at a claim, in seconds; `late` words the failure of one that took longer.

        `final_due` is called when a job is to be ended.
        """
        self._lane = lane
        self._leases = leases
        self._endings = endings
        self._deadline = deadline
        self._late = late
        self._final_due = final_due
        self._max_result = config.tasks.max_result_bytes
        self._max_events = config.tasks.max_events

    async def heartbeat(self, worker_id: str) -> list[str]:
        """Renews the lease; the names of claims whose job has ended, or whose attempt is over its deadline."""
        consumers = await self._leases.renew(worker_id)
        if not consumers:
            _gone(f"the lease of {worker_id} had lapsed: stop its work and claim anew")
        held = [one for consumer in consumers for one in await self._leases.held(consumer)]
        ended = await self._lane.canceled({one.claim.job_id for one in held})
        over = [one for one in held if one.claim.job_id in ended]
        going_on = [one for one in held if one.claim.job_id not in ended]
        late = [one for one in going_on if one.held_ms > self._deadline(one.claim) * 1000]
        for one in late:
            await self._end(one.lent, lambda claim: self._late(claim, self._deadline(claim)))
        for one in over:
            if one.ended_ms is not None and one.ended_ms > self._leases.ttl_ms:  # it was told, and settles nothing
                await self._end(one.lent, lambda _: Failure(_CANCELED, "the job has ended"))
        return [one.lent.name() for one in (*over, *late)]

    async def report(self, worker_id: str, name: str, first: int, events: Sequence[tuple[str, bytes]]) -> None:
        """Writes events of a claimed task job, type and data of each, numbered on from `first`; repeated, none twice.

        `INVALID_PAYLOAD` for what can be no event, `GONE` where the claim is lost or its job has ended.
        """
        lent = self._lent(worker_id, name)
        if not lent.job_id:
            raise invalid("only task jobs have events")
        check_events(events, first, self._max_events)
        work = QueuedTask(job_id=lent.job_id)
        claim = Claim(lent.partition, lent.entry, b"", work, lent.token, lent.attempt, lent.crashes)
        if not (await self._leases.holds(lent) and await self._lane.report(self._lane.adopt(claim), first, events)):
            _gone("the claim is lost, or its job has ended: stop the work")

    async def complete(self, worker_id: str, name: str, stored: StoredObject) -> str:
        """Settles the claim of a resource as done; the word of `SettleTaskResponse.outcome`."""
        lent = self._lent(worker_id, name)
        if lent.job_id:
            raise _other_kind("object", "a task job: complete it with a `result`")

        def succeeded(claim: Claim) -> Success:
            line = self._endings.stored(claim, stored, None)
            return Success(stored_line(claim.task, claim.attempt + 1, stored), (line,))

        return await self._end(lent, succeeded)

    async def complete_task(self, worker_id: str, name: str, result: bytes) -> str:
        """Settles the claim of a task job as done; the word of `SettleTaskResponse.outcome`."""
        lent = self._lent(worker_id, name)
        if not lent.job_id:
            raise _other_kind("result", "a resource: complete it with an `object`")
        check_result(result, self._max_result)
        return await self._end(lent, lambda _: Success(result=result))

    async def fail(self, worker_id: str, name: str, code: str, message: str, retry_after: float | None) -> str:
        """Settles an attempt as failed; the word of `SettleTaskResponse.outcome`."""

        def failed(claim: Claim) -> Failure:
            if claim.queued is not None:
                return Failure(code, message, retry_after=retry_after)
            line = self._endings.failed(claim, code, message, None, counts=True, facts={})
            detail = failed_line(claim.task, claim.attempt + 1, code, message, {})
            return Failure(code, message, detail, retry_after, logs=(line,))

        return await self._end(self._lent(worker_id, name), failed)

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
            _gone("the entry of this claim is no longer kept")
        lane, entry = self._lane, lent.entry
        moved = await self._leases.transfer(lent.holder, lent.consumer, lane.worker_id, lent.partition, [entry])
        if moved is None:
            _gone("the lease of this claim has lapsed; another worker may have the work")
        if claim is None or (lent.job_id and not moved[0]):
            return recorded or _gone("this claim is lost; another worker may have the work")
        settled = await lane.settle(lane.adopt(claim), worded(claim))
        if settled.final_due:
            self._final_due()
        return settled.outcome


def _other_kind(field: str, rule: str) -> FetchboxError:
    return invalid(f"this claim is of {rule}", [Violation(field, f"the claim is of {rule}")])


def _gone(message: str) -> NoReturn:
    raise FetchboxError(errors_pb2.REASON_GONE, message)
