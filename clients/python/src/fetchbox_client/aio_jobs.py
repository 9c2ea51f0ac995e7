"""Fetch jobs, task jobs and dead letters, on an event loop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobResponse
from fetchbox.operator.v1.job_pb2 import DeadLetter
from fetchbox.operator.v1.job_pb2 import Job as Snapshot
from fetchbox.operator.v1.operator_service_pb2 import PurgeDeadLettersResponse, ReplayOutcome
from fetchbox.task.v1.job_pb2 import Job
from fetchbox_client import job_calls as calls
from fetchbox_client.aio_transport import AsyncTransport
from fetchbox_client.errors import FailedPreconditionError
from fetchbox_client.events import Event
from fetchbox_client.options import Options
from fetchbox_client.results import AsyncRead, Result, parse_results, place_of

_PAUSE = 0.2


class AsyncJobs:
    """`client.jobs`: fetch jobs and task jobs."""

    def __init__(self, transport: AsyncTransport, options: Options) -> None:
        self._transport = transport
        self._tenant = options.tenant

    async def submit(
        self, manifest: calls.Manifest, *, job_type: str = "default", idempotency_key: str | None = None
    ) -> SubmitJobResponse:
        """Submits a manifest, and so creates a fetch job. It is repeated after a lost answer, and makes one job."""
        return await self._transport.unary(calls.submit(manifest, job_type, self._tenant, idempotency_key))

    async def create(
        self, task: str, payload: Any, *, ttl_s: int | None = None, idempotency_key: str | None = None
    ) -> Job:
        """Creates a task job. It is repeated after a lost answer, and makes one job."""
        return await self._transport.unary(calls.create(task, payload, ttl_s, idempotency_key))

    async def get(self, job_id: str) -> Job:
        """Reads a job."""
        return await self._transport.unary(calls.get(job_id))

    async def list(self, *, task: str = "", status: str = "", page_size: int = 0) -> AsyncIterator[Job]:
        """All jobs, newest first, without payloads and results."""
        token = ""
        while True:
            page = await self._transport.unary(calls.page(task, status, self._tenant, page_size, token))
            for one in page.jobs:
                yield one
            token = page.next_page_token
            if not token:
                return

    def watch(
        self, job_id: str, *, last_event_id: str = "", timeout: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a job behind `last_event_id`, live until its last one; a lost connection is resumed."""
        return self._transport.stream(calls.watch(job_id), last_event_id, timeout)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job:
        """The job, once it has ended."""
        while True:
            async for _event in self.watch(job_id, timeout=timeout):
                pass
            job = await self.get(job_id)
            if job.status in calls.ENDED:
                return job
            await asyncio.sleep(_PAUSE)  # workers beside FetchBox write the last event before the record

    async def result(self, job_id: str, *, timeout: float | None = None) -> Any:
        """The result of a task job, once it is done; raises `JobFailedError` where it has none."""
        return calls.result_of(await self.wait(job_id, timeout=timeout))

    async def cancel(self, job_id: str) -> Job:
        """Cancels a job; one that has ended stays as it is."""
        return await self._transport.unary(calls.cancel(job_id))

    async def snapshot(self, job_id: str) -> Snapshot:
        """A job as operators see it: its counts, and where manifest and results are. Needs an operator's token."""
        return await self._transport.unary(calls.snapshot(job_id))

    async def results(self, job_id: str, read: AsyncRead) -> AsyncIterator[Result]:
        """What became of each resource of a fetch job that has ended. `read` reads from the object store."""
        job = await self.snapshot(job_id)
        if not job.results_key:
            raise FailedPreconditionError(f"job {job_id} has no results: it has not ended, or is no fetch job")
        for result in parse_results(await read(*place_of(job.results_key))):
            yield result


class AsyncDeadLetters:
    """`client.dead_letters`: what failed for good and waits for an operator. Needs an operator's token."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, job_id: str = "", failure_code: str = "", page_size: int = 0) -> AsyncIterator[DeadLetter]:
        """All dead letters, newest first."""
        token = ""
        while True:
            page = await self._transport.unary(calls.dead_letters(job_id, failure_code, page_size, token))
            for one in page.dead_letters:
                yield one
            token = page.next_page_token
            if not token:
                return

    async def replay(
        self, positions: Sequence[str] = (), *, job_id: str = "", force: bool = False
    ) -> Sequence[ReplayOutcome]:
        """Replays those at `positions` (at most 500), or all of one job; each has its own outcome."""
        return [*(await self._transport.unary(calls.replay(positions, job_id, force=force))).outcomes]

    async def purge(
        self, positions: Sequence[str] = (), *, job_id: str = "", before_ms: int = 0
    ) -> PurgeDeadLettersResponse:
        """Deletes those at `positions`, of one job, or that failed before a time: at most 500 a call."""
        return await self._transport.unary(calls.purge(positions, job_id, before_ms))
