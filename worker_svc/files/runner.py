"""What happens in a slot to a file job: its file is stored, or its manifest submitted, as an outcome."""

from __future__ import annotations

from typing import Protocol

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.durations import seconds
from kernel.errors import failure_name
from kernel.objects import ObjectStore, ObjectStoreError
from kernel.queue.work.file_job import FileJob
from kernel.queue.work.types import Failure, Outcome, Success
from kernel.telemetry import metrics, tracing
from kernel.telemetry.logs import get_logger
from worker_svc.fetch.limits import ByteBudget
from worker_svc.files.failure import FileFailure, of_system
from worker_svc.files.manifests import SUFFIX, Manifests
from worker_svc.files.roots import Roots
from worker_svc.files.storing import Storing
from worker_svc.files.threads import Threads

log = get_logger("worker.files")

_CANCELED = failure_name(codes.FAILURE_CODE_SYSTEM_CANCELED)
_DEADLINE = failure_name(codes.FAILURE_CODE_HANDLER_DEADLINE)
_STORE_DOWN = failure_name(codes.FAILURE_CODE_STORAGE_UNAVAILABLE)


class FileClaim(Protocol):
    """What a lane hands out with a file job."""

    @property
    def file(self) -> FileJob:
        """The job."""
        ...

    @property
    def queue(self) -> str:
        """The list that it came from."""
        ...


class FileRunner:
    """Does claims of file jobs; a duty of its service, since threads and a channel end with it."""

    name = "files"

    def __init__(self, config: Config, objects: ObjectStore, budget: ByteBudget | None = None) -> None:
        """`budget` bounds the bytes of files in memory; `ConfigError` for a prefix that makes no object keys."""
        threads = Threads(config.worker.count, "files")
        roots = Roots(config)
        self._threads = threads
        self._storing = Storing(config, roots, objects, threads, budget or ByteBudget())
        self._manifests = Manifests(config, roots, threads)
        self._pause = seconds(config.worker.backoff.max)

    async def start(self) -> None:
        """Nothing: threads and channel come with the first job that needs them."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: the slots wait for their jobs."""

    async def stop(self) -> None:
        """Gives threads and channel back; safe to call twice."""
        self._threads.close()
        await self._manifests.close()

    async def __call__(self, claim: FileClaim) -> Outcome:
        """One attempt."""
        job = claim.file
        with tracing.job_span(queue=claim.queue, job_id=job.id, parent=job.traceparent) as span:
            outcome = await self._outcome(job)
            span.outcome(outcome)
        return outcome

    def late(self, claim: FileClaim, deadline: float) -> Failure:  # noqa: ARG002 - worded alike for every job
        """The outcome of an attempt that was stopped after `deadline` seconds."""
        return Failure(_DEADLINE, f"the attempt exceeded its deadline of {deadline:g} s")

    def canceled(self, claim: FileClaim) -> Failure:  # noqa: ARG002 - worded alike for every job
        """The outcome of an attempt whose job was canceled."""
        return Failure(_CANCELED, "the job was canceled")

    async def _outcome(self, job: FileJob) -> Outcome:
        try:
            if job.filepath.endswith(SUFFIX):
                await self._manifests.submit(job)
            else:
                await self._store(job)
        except ObjectStoreError as error:
            return self._store_fault(error)
        except OSError as error:
            return _failed(of_system(error))
        except FileFailure as failure:
            return _failed(failure)
        return Success()

    async def _store(self, job: FileJob) -> None:
        stored = await self._storing.store(job)
        metrics.BYTES_STORED.inc(stored.size)
        log.debug("file_stored", job_id=job.id, bucket=stored.bucket, key=stored.key, size=stored.size)

    def _store_fault(self, error: ObjectStoreError) -> Failure:
        """An outage of our own store is no fault of the file: it waits, and that costs no attempt."""
        if error.failure == _STORE_DOWN:
            return Failure(error.failure, error.message, retry_after=self._pause, counts=False)
        return Failure(error.failure, error.message)


def _failed(failure: FileFailure) -> Failure:
    return Failure(failure.code, failure.message, retry_after=failure.retry_after, counts=failure.counts)
