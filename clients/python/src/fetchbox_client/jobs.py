"""Fetch jobs, task jobs and dead letters, for programs that block."""

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobResponse
from fetchbox.operator.v1.job_pb2 import DeadLetter
from fetchbox.operator.v1.job_pb2 import Job as Snapshot
from fetchbox.operator.v1.operator_service_pb2 import PurgeDeadLettersResponse, ReplayOutcome
from fetchbox.task.v1.job_pb2 import Job
from fetchbox_client import job_calls as calls
from fetchbox_client.errors import FailedPreconditionError
from fetchbox_client.events import Event
from fetchbox_client.options import Options
from fetchbox_client.results import Read, Result, parse_results, place_of
from fetchbox_client.transport import Transport

_PAUSE = 0.2


class Jobs:
    """`client.jobs`: fetch jobs and task jobs."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._tenant = options.tenant

    def submit(
        self, manifest: calls.Manifest, *, job_type: str = "default", idempotency_key: str | None = None
    ) -> SubmitJobResponse:
        """Submits a manifest, and so creates a fetch job. It is repeated after a lost answer, and makes one job."""
        return self._transport.unary(calls.submit(manifest, job_type, self._tenant, idempotency_key))

    def create(self, task: str, payload: Any, *, ttl_s: int | None = None, idempotency_key: str | None = None) -> Job:
        """Creates a task job. It is repeated after a lost answer, and makes one job."""
        return self._transport.unary(calls.create(task, payload, ttl_s, idempotency_key))

    def get(self, job_id: str) -> Job:
        """Reads a job."""
        return self._transport.unary(calls.get(job_id))

    def list(self, *, task: str = "", status: str = "", page_size: int = 0) -> Iterator[Job]:
        """All jobs, newest first, without payloads and results."""
        token = ""
        while True:
            page = self._transport.unary(calls.page(task, status, self._tenant, page_size, token))
            yield from page.jobs
            token = page.next_page_token
            if not token:
                return

    def watch(
        self, job_id: str, *, last_event_id: str = "", timeout: float | None = None
    ) -> Generator[Event, None, None]:
        """The events of a job behind `last_event_id`, live until its last one; a lost connection is resumed."""
        return self._transport.stream(calls.watch(job_id), last_event_id, timeout)

    def wait(self, job_id: str, *, timeout: float | None = None) -> Job:
        """The job, once it has ended."""
        while True:
            for _event in self.watch(job_id, timeout=timeout):
                pass
            job = self.get(job_id)
            if job.status in calls.ENDED:
                return job
            time.sleep(_PAUSE)  # workers beside FetchBox write the last event before the record

    def result(self, job_id: str, *, timeout: float | None = None) -> Any:
        """The result of a task job, once it is done; raises `JobFailedError` where it has none."""
        return calls.result_of(self.wait(job_id, timeout=timeout))

    def cancel(self, job_id: str) -> Job:
        """Cancels a job; one that has ended stays as it is."""
        return self._transport.unary(calls.cancel(job_id))

    def snapshot(self, job_id: str) -> Snapshot:
        """A job as operators see it: its counts, and where manifest and results are. Needs an operator's token."""
        return self._transport.unary(calls.snapshot(job_id))

    def results(self, job_id: str, read: Read) -> Iterator[Result]:
        """What became of each resource of a fetch job that has ended. `read` reads from the object store."""
        job = self.snapshot(job_id)
        if not job.results_key:
            raise FailedPreconditionError(f"job {job_id} has no results: it has not ended, or is no fetch job")
        yield from parse_results(read(*place_of(job.results_key)))


class DeadLetters:
    """`client.dead_letters`: what failed for good and waits for an operator. Needs an operator's token."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, job_id: str = "", failure_code: str = "", page_size: int = 0) -> Iterator[DeadLetter]:
        """All dead letters, newest first."""
        token = ""
        while True:
            page = self._transport.unary(calls.dead_letters(job_id, failure_code, page_size, token))
            yield from page.dead_letters
            token = page.next_page_token
            if not token:
                return

    def replay(
        self, positions: Sequence[str] = (), *, job_id: str = "", force: bool = False
    ) -> Sequence[ReplayOutcome]:
        """Replays those at `positions` (at most 500), or all of one job; each has its own outcome."""
        return [*self._transport.unary(calls.replay(positions, job_id, force=force)).outcomes]

    def purge(self, positions: Sequence[str] = (), *, job_id: str = "", before_ms: int = 0) -> PurgeDeadLettersResponse:
        """Deletes those at `positions`, of one job, or that failed before a time: at most 500 a call."""
        return self._transport.unary(calls.purge(positions, job_id, before_ms))
