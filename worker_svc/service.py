"""`fetchbox.worker.v1.WorkerService`: how this worker is steered, and how it lends tasks to workers elsewhere."""
# ruff: noqa: N802, ARG002 - gRPC names the methods and gives each of them the same arguments

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from fetchbox.worker.v1 import worker_service_pb2 as pb
from fetchbox.worker.v1 import worker_service_pb2_grpc as pb_grpc
from kernel.clock import Clock
from kernel.durations import seconds
from kernel.handlers import StoredObject
from kernel.queue.streams.worker import WorkerLane
from worker_svc.lending import Lending
from worker_svc.returning import Returning
from worker_svc.runner import Runner

_Context = grpc.aio.ServicerContext[Any, Any]


class WorkerService(pb_grpc.WorkerServiceServicer):
    """Each method translates; `Runner` steers, `Lending` lends, and `Returning` takes back."""

    def __init__(
        self, lane: WorkerLane, runner: Runner, lending: Lending, returning: Returning, clock: Clock, drain_grace: float
    ) -> None:
        """`drain_grace`, in seconds, is that of a drain that names none."""
        self._lane = lane
        self._runner = runner
        self._lending = lending
        self._returning = returning
        self._clock = clock
        self._drain_grace = drain_grace

    async def GetStatus(self, request: pb.GetStatusRequest, context: _Context) -> pb.WorkerStatus:
        """What this worker does now."""
        return self._status()

    async def Pause(self, request: pb.PauseRequest, context: _Context) -> pb.WorkerStatus:
        """Claims nothing more."""
        self._runner.pause()
        return self._status()

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.WorkerStatus:
        """Claims again."""
        self._runner.resume()
        return self._status()

    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.WorkerStatus:
        """Answers when nothing runs here any more."""
        await self._runner.drain(seconds(request.grace) if request.HasField("grace") else self._drain_grace)
        return self._status()

    async def ClaimTasks(self, request: pb.ClaimTasksRequest, context: _Context) -> pb.ClaimTasksResponse:
        """Lends tasks."""
        wait = seconds(request.wait)
        lent = await self._lending.claim(request.worker_id, request.max_tasks or 1, wait, request.kinds)
        tasks = [_claimed(claim, work) for claim, work in lent]
        return pb.ClaimTasksResponse(tasks=tasks, lease=self._lease())

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: _Context) -> pb.HeartbeatResponse:
        """Renews a lease."""
        canceled = await self._returning.heartbeat(request.worker_id)
        return pb.HeartbeatResponse(lease=self._lease(), canceled=canceled)

    async def ReportEvents(self, request: pb.ReportEventsRequest, context: _Context) -> pb.ReportEventsResponse:
        """Writes events of a lent task."""
        events = [(event.type, event.data) for event in request.events]
        await self._returning.report(request.worker_id, request.claim, request.first, events)
        return pb.ReportEventsResponse()

    async def CompleteTask(self, request: pb.CompleteTaskRequest, context: _Context) -> pb.SettleTaskResponse:
        """Settles a lent task as done."""
        returning, worker_id, claim = self._returning, request.worker_id, request.claim
        if request.WhichOneof("outcome") == "result":
            outcome = await returning.complete_task(worker_id, claim, request.result)
        else:
            outcome = await returning.complete(worker_id, claim, _stored(request.object))
        return pb.SettleTaskResponse(outcome=outcome)

    async def FailTask(self, request: pb.FailTaskRequest, context: _Context) -> pb.SettleTaskResponse:
        """Settles an attempt at a lent task as failed."""
        retry_after = seconds(request.retry_after) if request.HasField("retry_after") else None
        outcome = await self._returning.fail(
            request.worker_id, request.claim, request.failure_code, request.failure_message, retry_after
        )
        return pb.SettleTaskResponse(outcome=outcome)

    def _lease(self) -> Duration:
        lease = Duration()
        lease.FromMilliseconds(int(self._lending.lease_seconds * 1000))
        return lease

    def _status(self) -> pb.WorkerStatus:
        runner, now = self._runner, self._clock.monotonic()
        return pb.WorkerStatus(
            worker_id=self._lane.worker_id,
            state=runner.state,
            slots=runner.limits.slots,
            running=[
                pb.RunningTask(
                    job_id=slot.claim.job_id,
                    resource_id=slot.claim.resource_id,
                    running_seconds=now - slot.since,
                )
                for slot in sorted(runner.running, key=lambda slot: slot.since)
            ],
            completed=runner.counts.completed,
            failed=runner.counts.failed,
            retried=runner.counts.retried,
            last_poll_age_seconds=self._lane.last_poll_age,
        )


def _claimed(claim: str, work: DownloadTask | QueuedTask) -> pb.ClaimedTask:
    if isinstance(work, QueuedTask):
        return pb.ClaimedTask(claim=claim, queued_task=work)
    return pb.ClaimedTask(claim=claim, task=work)


def _stored(told: pb.StoredObject) -> StoredObject:
    return StoredObject(
        key=told.key,
        size=told.size,
        sha256=told.sha256,
        content_type=told.content_type,
        final_url=told.final_url,
        http_status=told.http_status,
    )
