"""From an order to a job that waits on the queue, once for its idempotency key, if it has one.

The key is claimed (`Once`); the queue admits the job, writes its record and first event, and takes it
(`kernel.ledger.task_queue`). The answer is kept under the key between record and queue, so that the key still knows its
job when the job has run and its record has expired. A process that dies on the way leaves either nothing or a job that
the sweep finishes. Whoever repeats the order with its key gets the same job.
"""

import json
from dataclasses import replace
from functools import partial

from fetchbox.errors.v1 import errors_pb2
from fetchbox.task.v1.job_pb2 import Job
from ingest_svc import task_views
from ingest_svc.idempotency import KeyClaim
from ingest_svc.once import ForeignJobError, Hold, Once, outcome_unknown
from ingest_svc.publication import Reached
from ingest_svc.task_order import TaskOrder
from kernel.auth import Caller
from kernel.errors import FetchboxError
from kernel.ids import is_key_safe
from kernel.ledger import Ledger, TaskRecord
from kernel.ledger.task_queue import Keep, NewTask, TaskQueue
from kernel.redis import keys
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("ingest.tasks")


class TaskCreator:
    """Makes jobs of checked orders."""

    def __init__(self, once: Once, queue: TaskQueue, ledger: Ledger, reached: Reached) -> None:
        self._once = once
        self._queue = queue
        self._ledger = ledger
        self._reached = reached

    async def create(self, order: TaskOrder, caller: Caller) -> Job:
        """The job of an order, as it was when it was created; a known key gives the job that it has.

        `RATE_LIMITED` where the backlog is full; `IDEMPOTENCY_CONFLICT`; `UNAVAILABLE` where a dependency fails, which
        leaves the outcome open and says so.
        """
        try:
            job = await (self._of_key(order) if order.idempotency_key else self._of_nobody_else(order))
        except ForeignJobError as foreign:
            return await self.others(order.new, foreign.job_id, caller)
        except FetchboxError as error:
            raise as_seen(error, order.idempotency_key) from error
        job.payload = order.new.payload
        return job

    async def _of_key(self, order: TaskOrder) -> Job:
        claim = claim_of(order)
        return Job.FromString(await self._once.run(claim, partial(self._make, order.new, claim.name)))

    async def _of_nobody_else(self, order: TaskOrder) -> Job:
        self._reached("claimed")
        return await self._made(order.new, None)

    async def _make(self, proposed: NewTask, name: str, hold: Hold) -> bytes:
        new = proposed if proposed.job_id == hold.job_id else replace(proposed, job_id=hold.job_id)
        self._reached("claimed")
        record = None if hold.fresh else await self._ledger.get(new.job_id)
        if record is None:
            job = await self._made(new, kept(new, name))
        else:  # made by one who died, from the same order
            new = replace(new, ttl_s=record.ttl_s, trace_id=record.trace_id)
            job = job_of(new, await self._queue.finish(new, record.created_ms, kept(new, name)))
            self._reached("queued")
            tell(new)
        hold.kept = True
        return job.SerializeToString()

    async def _made(self, new: NewTask, keep: Keep | None) -> Job:
        created_ms = await self._queue.create(new, keep)
        self._reached("queued")
        tell(new)
        return job_of(new, created_ms)

    async def others(self, new: NewTask, job_id: str, caller: Caller) -> Job:
        """The job that another gateway made under the key, if this order is the same."""
        found = await self._ledger.task(job_id) if is_key_safe(job_id) else None
        if found is None or not task_views.may_see(caller, found.record) or not _is_same(new, found):
            raise FetchboxError(
                errors_pb2.REASON_IDEMPOTENCY_CONFLICT,
                "another gateway has used the idempotency key, and not for this request; choose another one",
            )
        metrics.JOBS_REPEATED.inc()
        return task_views.whole(found)


def claim_of(order: TaskOrder) -> KeyClaim:
    """The idempotency key of an order that has one, and the job that it proposes."""
    name = keys.task_idempotency(order.new.tenant, order.idempotency_key)
    return KeyClaim(name, order.digest, order.new.job_id, order.window_ms)


def kept(new: NewTask, name: str) -> Keep:
    """What is kept under an idempotency key: the answer without the payload, for the key is bound to its digest."""
    return Keep(name, lambda created_ms: job_of(new, created_ms).SerializeToString())


def as_seen(error: FetchboxError, key: str) -> FetchboxError:
    """An error of a creation as its client should see it."""
    return outcome_unknown(error, key) if error.reason == errors_pb2.REASON_UNAVAILABLE else error


def tell(*made: NewTask) -> None:
    """Counts and logs jobs that were made."""
    metrics.JOBS_PRODUCED.labels(keys.QUEUE).inc(len(made))
    for new in made:
        metrics.JOBS_ACCEPTED.labels(new.task).inc()
        log.info("job_accepted", job_id=new.job_id, tenant=new.tenant, task=new.task)


def job_of(new: NewTask, created_ms: int) -> Job:
    """A job as it is when it is created, without its payload."""
    return Job(
        job_id=new.job_id,
        task=new.task,
        status="queued",
        created_ts=created_ms,
        updated_ts=created_ms,
        ttl_s=new.ttl_s,
        tenant=new.tenant,
        trace_id=new.trace_id,
    )


def _is_same(new: NewTask, found: TaskRecord) -> bool:
    """Whether a job has the task and the payload, however that is written."""
    if found.record.task != new.task:
        return False
    if found.payload == new.payload:
        return True
    try:
        return bool(json.loads(found.payload) == json.loads(new.payload))
    except (ValueError, RecursionError):
        return False
