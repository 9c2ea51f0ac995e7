"""`fetchbox.task.v1.TaskService`: task jobs for their clients.

A tenant's token sees the jobs of its tenant alone: others are not found. The interceptor turns what is raised into a
status.
"""
# ruff: noqa: N802, ARG002 - gRPC names the methods and gives each of them the same arguments

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1.job_pb2 import JobEvent
from fetchbox.task.v1 import task_service_pb2 as pb
from fetchbox.task.v1.job_pb2 import Job
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceServicer
from ingest_svc import task_views
from ingest_svc.batch_service import BatchService
from ingest_svc.running import Running
from ingest_svc.secret_rules import SecretRules
from ingest_svc.task_creation import TaskCreator
from ingest_svc.task_order import HEAVY_BYTES, Sender, checked, read_order
from kernel import pages
from kernel.auth import current_caller
from kernel.breakers.ratelimit import RateLimit
from kernel.errors import FetchboxError, no_job, reason_name
from kernel.ledger import Ledger
from kernel.offload import Offload
from kernel.queue.announcements import Announcer
from kernel.telemetry import metrics
from kernel.validation import require_valid
from kernel.watch import JobWatches, dropper

Context = grpc.aio.ServicerContext[Any, Any]
CANCELED_BY = "gateway.cancel"
"""The step of the event that a client's cancel leaves."""


class TaskService(TaskServiceServicer):
    """The RPCs of whoever has tasks to run."""

    def __init__(
        self,
        config: Config,
        *,
        creator: TaskCreator,
        batches: BatchService,
        secrets: SecretRules,
        ledger: Ledger,
        announcer: Announcer,
        watches: JobWatches,
        rate: RateLimit,
        offload: Offload,
        running: Running,
    ) -> None:
        self._config = config
        self._secrets = secrets
        self._creator = creator
        self._batches = batches
        self._ledger = ledger
        self._announcer = announcer
        self._watches = watches
        self._rate = rate
        self._offload = offload
        self._running = running

    async def CreateJob(self, request: pb.CreateJobRequest, context: Context) -> Job:
        """Creates a job and queues it."""
        with _submit():
            return await self._create(request, _sender(context))

    async def CreateJobs(self, request: pb.CreateJobsRequest, context: Context) -> pb.CreateJobsResponse:
        """Creates many jobs and queues them."""
        with _submit():
            return await self._batches.create(request, _sender(context))

    async def CreateJobStream(
        self, request_iterator: AsyncIterator[pb.CreateJobStreamRequest], context: Context
    ) -> AsyncIterator[pb.CreateJobStreamResponse]:
        """Creates jobs as long as orders come."""
        async for result in self._batches.stream(request_iterator, _sender(context)):
            yield result

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> Job:
        """Reads one job."""
        require_valid(request)
        return await self._seen(request.job_id)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """A page of jobs, and how many there are by state."""
        require_valid(request)
        tenant = task_views.tenant_filter(current_caller(), request.tenant)
        filters = (request.task, request.status, tenant)
        records, cursor = await self._ledger.page(
            pages.size(request.page_size),
            pages.jobs_cursor(request.page_token, filters),
            task=request.task,
            status=request.status,
            tenant=tenant,
        )
        counts = await self._ledger.counts_by_state(tenant)
        return pb.ListJobsResponse(
            jobs=map(task_views.listed, records),
            next_page_token=pages.token(cursor, filters),
            counts=None if counts is None else pb.JobCounts(**counts),
        )

    async def WatchJob(self, request: pb.WatchJobRequest, context: Context) -> AsyncIterator[JobEvent]:
        """The events of one job."""
        require_valid(request)
        mine = partial(task_views.may_see, current_caller())
        async for event in self._watches.watch(request.job_id, request.last_event_id, dropper(context), mine):
            yield event

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> Job:
        """Cancels; the job as it stands then."""
        require_valid(request)
        await self._seen(request.job_id)
        await self._ledger.cancel(request.job_id, CANCELED_BY)
        await self._announcer.announce(request.job_id)
        return await self._seen(request.job_id)

    async def _create(self, request: pb.CreateJobRequest, sender: Sender) -> Job:
        order = read_order(request, sender, self._config)
        self._secrets.require_task(order.new.task, order.new.tenant)
        heavy = len(request.payload) > HEAVY_BYTES
        order = await self._offload.run(heavy, partial(checked, order, request, self._config.tasks))
        await self._rate.take(order.new.tenant)
        return await self._running.to_the_end(self._creator.create(order, sender.caller))

    async def _seen(self, job_id: str) -> Job:
        """A job that is there and the caller's to see."""
        found = await self._ledger.task(job_id)
        if found is None or not task_views.may_see(current_caller(), found.record):
            raise no_job(job_id)
        return task_views.whole(found)


def _sender(context: Context) -> Sender:
    return Sender.of(tuple(context.invocation_metadata() or ()), current_caller())


@contextmanager
def _submit() -> Iterator[None]:
    """Measures a submit, and counts one that is refused."""
    started = time.monotonic()
    try:
        yield
    except FetchboxError as error:
        metrics.JOBS_REFUSED.labels(reason_name(error.reason)).inc()
        raise
    finally:
        metrics.SUBMIT_SECONDS.observe(time.monotonic() - started)
