"""What happens in a slot: the handler of the job type does the task, and how it went becomes an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader
from kernel.clock import Clock
from kernel.durations import seconds
from kernel.errors import failure_name
from kernel.handlers import HandlerRegistry, JobHandler, StoredObject
from kernel.objects import ObjectStore, ObjectStoreError
from kernel.queue.work.types import Claim, Failure, Outcome, Success
from kernel.redis import keys
from kernel.telemetry import metrics, tracing
from worker_svc.attempt import Attempt
from worker_svc.endings import JobEndings
from worker_svc.faults import failure_of
from worker_svc.fetch import Fetcher, FetchFailure
from worker_svc.results import failed_line, stored_line

_SCHEMES = ("http://", "https://")
_DEADLINE = failure_name(errors_pb2.FAILURE_CODE_DOWNLOAD_DEADLINE)
_HANDLER_DEADLINE = failure_name(errors_pb2.FAILURE_CODE_HANDLER_DEADLINE)
_HANDLER_UNKNOWN = failure_name(errors_pb2.FAILURE_CODE_HANDLER_UNKNOWN)
_STORE_DOWN = failure_name(errors_pb2.FAILURE_CODE_STORAGE_UNAVAILABLE)
_CANCELED = failure_name(errors_pb2.FAILURE_CODE_SYSTEM_CANCELED)
_BAD_TASK = failure_name(errors_pb2.FAILURE_CODE_VALIDATION_TASK)
_BAD_URL = failure_name(errors_pb2.FAILURE_CODE_VALIDATION_URL)


class TaskRunner:
    """Does claims. Whatever a handler raises is an outcome, never an exception."""

    def __init__(
        self,
        config: Config,
        handlers: HandlerRegistry,
        fetcher: Fetcher,
        objects: ObjectStore,
        clock: Clock,
        endings: JobEndings,
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._fetcher = fetcher
        self._objects = objects
        self._clock = clock
        self._endings = endings
        self._pause = seconds(config.worker.backoff.max)
        self._longest_wait = seconds(config.fetcher.max_retry_after)

    async def __call__(self, claim: Claim) -> Outcome:
        """One attempt."""
        started = self._clock.monotonic()
        task = claim.task
        with tracing.job_span(
            queue=keys.TASKS,
            job_id=task.job_id,
            parent=claim.traceparent,
            part=task.resource_id,
            delivery=claim.token,
            resource_id=task.resource_id,
        ) as span:
            outcome = await self._outcome(claim)
            span.outcome(outcome)
        if not (isinstance(outcome, Failure) and not outcome.counts):  # a deferral is no attempt
            metrics.TASK_SECONDS.labels(metrics.job_type(task.job_type)).observe(self._clock.monotonic() - started)
        return outcome

    async def _outcome(self, claim: Claim) -> Outcome:
        task = self._handed_out(claim)
        attempt = Attempt(task, claim, self._config, self._fetcher, self._objects, self._clock)
        handler = self._handlers.get(task.job_type)
        if handler is None:
            message = f"the job type {task.job_type!r} is not configured here"
            return self._failed(claim, attempt, _HANDLER_UNKNOWN, message)
        if (refusal := _refusal(task)) is not None:
            return self._failed(claim, attempt, *refusal)
        return await self._attempt(claim, task, attempt, handler)

    async def _attempt(self, claim: Claim, task: DownloadTask, attempt: Attempt, handler: JobHandler) -> Outcome:
        try:
            stored = await handler.run(task, attempt)
            return self._stored(claim, attempt, stored)
        except FetchFailure as failure:
            failed = self._failed(claim, attempt, failure.code, failure.message, failure.facts, failure.counts)
            failed.retry_after = failure.retry_after if failed.code != _STORE_DOWN else self._pause
            return failed
        except ObjectStoreError as error:
            failed = self._failed(claim, attempt, error.failure, error.message)
            failed.retry_after = self._pause if failed.code == _STORE_DOWN else None
            return failed
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - also `sys.exit()`: a handler's fault is its task's outcome
            about = {"job_id": claim.job_id, "job_type": claim.job_type, "resource_id": claim.resource_id}
            told = failure_of(error, self._longest_wait, **about)
            failed = self._failed(claim, attempt, told.code, told.message)
            failed.retry_after, failed.crashed = told.retry_after, told.crashed
            return failed

    def late(self, claim: Claim, deadline: float) -> Failure:
        """The outcome of an attempt that was stopped after `deadline` seconds."""
        handler = self._handlers.get(claim.job_type)
        own = handler is not None and type(handler).run is not JobHandler.run
        code = _HANDLER_DEADLINE if own else _DEADLINE
        message = f"the attempt exceeded its deadline of {deadline:g} s"
        failure = _plain(claim, code, message)
        failure.logs = (self._endings.failed(claim, code, message, deadline, counts=True, facts={}),)
        return failure

    def canceled(self, claim: Claim) -> Failure:
        """The outcome of an attempt whose job was canceled."""
        return _plain(claim, _CANCELED, "the job was canceled")

    def _handed_out(self, claim: Claim) -> DownloadTask:
        """The task as its handler gets it: with the number of the attempt, and the headers of its job type.

        A direct producer does not know those.
        """
        task = DownloadTask()
        task.CopyFrom(claim.task)
        task.attempt = claim.attempt + 1
        job_type = self._config.job_types.get(task.job_type)
        if job_type is not None and job_type.default_headers:
            present = {header.name.lower() for header in task.headers}
            lacking = {name.lower(): value for name, value in job_type.default_headers.items()}
            task.headers.extend(HttpHeader(name=n, value=value) for n, value in lacking.items() if n not in present)
        return task

    def _failed(
        self,
        claim: Claim,
        attempt: Attempt,
        code: str,
        message: str,
        facts: Mapping[str, Any] | None = None,
        counts: bool = True,
    ) -> Failure:
        """The failure and its line. An outage of our own store is no fault of the task: it costs no attempt either."""
        counts = counts and code != _STORE_DOWN
        known = facts or {}
        line = self._endings.failed(claim, code, message, attempt.seconds, counts=counts, facts=known)
        detail = failed_line(claim.task, claim.attempt + 1, code, message, known)
        return Failure(code, message, detail, counts=counts, logs=(*attempt.logs, line))

    def _stored(self, claim: Claim, attempt: Attempt, stored: StoredObject) -> Success:
        metrics.BYTES_STORED.inc(stored.size)
        line = self._endings.stored(claim, stored, attempt.seconds, attempt.provenance)
        return Success(stored_line(claim.task, claim.attempt + 1, stored), (*attempt.logs, line))


def _refusal(task: DownloadTask) -> tuple[str, str] | None:
    """Why a task cannot even be tried. Direct producers are checked by nobody before."""
    if not task.resource_id:
        return _BAD_TASK, "the task has no resource_id"
    if not task.url[:8].lower().startswith(_SCHEMES):
        return _BAD_URL, "the URL is not http or https"
    return None


def _plain(claim: Claim, code: str, message: str) -> Failure:
    return Failure(code, message, failed_line(claim.task, claim.attempt + 1, code, message, {}))
