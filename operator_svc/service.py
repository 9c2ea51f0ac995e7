"""`fetchbox.operator.v1.OperatorService`: each method hands its request to the file of its noun."""
# ruff: noqa: N802, ARG002 - gRPC names the methods and gives each of them the same arguments

from collections.abc import AsyncIterator
from typing import Any

import grpc

from fetchbox.operator.v1 import operator_service_pb2 as pb
from fetchbox.operator.v1.files_pb2 import Breaker
from fetchbox.operator.v1.job_pb2 import Job, JobEvent, LogEntry
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceServicer
from kernel.breakers import Breakers
from kernel.ledger import Ledger
from kernel.log.backlog import Backlogs
from kernel.queue.announcements import Announcer
from kernel.watch import JobWatches, dropper
from operator_svc import circuits, export, jobs, listing, queues, streams
from operator_svc.dead_letters import DeadLetterOffice
from operator_svc.file_letters import FileLetterOffice
from operator_svc.file_queues import ListViews
from operator_svc.file_replays import FileReplays
from operator_svc.health import Health
from operator_svc.logs import JobLogs
from operator_svc.replays import Replays

Context = grpc.aio.ServicerContext[Any, Any]
CANCELED_BY = "operator.cancel"
"""The step of the event that an operator's cancel leaves."""


class OperatorService(OperatorServiceServicer):
    """The RPCs of operators. Requests are checked against their proto's rules before they come here."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        announcer: Announcer,
        watches: JobWatches,
        logs: JobLogs,
        health: Health,
        backlogs: Backlogs,
        office: DeadLetterOffice,
        replays: Replays,
        views: ListViews,
        file_office: FileLetterOffice,
        file_replays: FileReplays,
        breakers: Breakers,
    ) -> None:
        self._ledger = ledger
        self._announcer = announcer
        self._watches = watches
        self._logs = logs
        self._health = health
        self._backlogs = backlogs
        self._office = office
        self._replays = replays
        self._views = views
        self._file_office = file_office
        self._file_replays = file_replays
        self._breakers = breakers

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> Job:
        """The snapshot of one job."""
        return jobs.snapshot(await jobs.require(self._ledger, request.job_id))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """A page of snapshots."""
        return await listing.page(self._ledger, request)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> Job:
        """Cancels; the snapshot as it stands then."""
        await self._ledger.cancel(request.job_id, CANCELED_BY)
        await self._announcer.announce(request.job_id)
        return jobs.snapshot(await jobs.require(self._ledger, request.job_id))

    async def StreamJobLogs(self, request: pb.StreamJobLogsRequest, context: Context) -> AsyncIterator[LogEntry]:
        """The log of one job."""
        since = request.since_offset if request.HasField("since_offset") else None
        async for entry in self._logs.stream(request.job_id, since, dropper(context), follow=request.follow):
            yield entry

    async def WatchJob(self, request: pb.WatchJobRequest, context: Context) -> AsyncIterator[JobEvent]:
        """The events of one job."""
        async for event in self._watches.watch(request.job_id, request.last_event_id, dropper(context)):
            yield event

    async def ExportJobs(self, request: pb.ExportJobsRequest, context: Context) -> AsyncIterator[Job]:
        """The snapshots of all jobs."""
        async for job in export.snapshots(self._ledger, ended_only=request.ended_only):
            yield job

    async def GetHealth(self, request: pb.GetHealthRequest, context: Context) -> pb.HealthReport:
        """The health of everything."""
        return await self._health.require()

    async def ListStreams(self, request: pb.ListStreamsRequest, context: Context) -> pb.ListStreamsResponse:
        """All partitions of all streams."""
        return await streams.partitions(self._backlogs)

    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Context) -> pb.ListDeadLettersResponse:
        """A page of dead letters."""
        return await self._office.page(request)

    async def ReplayDeadLetters(
        self, request: pb.ReplayDeadLettersRequest, context: Context
    ) -> pb.ReplayDeadLettersResponse:
        """Puts dead letters back."""
        return await self._replays.replay(request)

    async def PurgeDeadLetters(
        self, request: pb.PurgeDeadLettersRequest, context: Context
    ) -> pb.PurgeDeadLettersResponse:
        """Deletes dead letters."""
        return await self._office.purge(request)

    async def ListQueues(self, request: pb.ListQueuesRequest, context: Context) -> pb.ListQueuesResponse:
        """The priority lists and their workers."""
        return await queues.queues(self._views, self._breakers)

    async def ListFileDeadLetters(
        self, request: pb.ListFileDeadLettersRequest, context: Context
    ) -> pb.ListFileDeadLettersResponse:
        """A page of dead file jobs."""
        return await self._file_office.page(request)

    async def ReplayFileDeadLetters(
        self, request: pb.ReplayFileDeadLettersRequest, context: Context
    ) -> pb.ReplayFileDeadLettersResponse:
        """Puts dead file jobs back."""
        return await self._file_replays.replay(request)

    async def PurgeFileDeadLetters(
        self, request: pb.PurgeFileDeadLettersRequest, context: Context
    ) -> pb.PurgeFileDeadLettersResponse:
        """Deletes dead file jobs."""
        return await self._file_office.purge(request)

    async def ListBreakers(self, request: pb.ListBreakersRequest, context: Context) -> pb.ListBreakersResponse:
        """Circuit breakers that have something to tell."""
        return await circuits.listed(self._breakers)

    async def ResetBreaker(self, request: pb.ResetBreakerRequest, context: Context) -> Breaker:
        """Closes a circuit breaker."""
        return await circuits.reset(self._breakers, request.name)
