"""What happens in a slot to a task job: its handler does it, and how that went becomes an outcome."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.breakers import Breakers
from kernel.clock import Clock
from kernel.durations import seconds
from kernel.errors import failure_name
from kernel.queue.streams.worker import WorkerLane
from kernel.queue.work.types import Claim, Failure, Outcome, Success
from kernel.redis import keys
from kernel.telemetry import tracing
from worker_svc.circuits import tell
from worker_svc.faults import failure_of
from worker_svc.isolation.tasks import IsolatedResult
from worker_svc.slot import Slot
from worker_svc.steps import StepLogs
from worker_svc.task_json import json_bytes, payload_object
from worker_svc.task_run import HANDLER_RESULT, HandlerRun, RunTerms
from worker_svc.task_threads import in_thread
from worker_svc.ways import Given, Ways

_CANCELED = failure_name(errors_pb2.FAILURE_CODE_SYSTEM_CANCELED)
_DEADLINE = failure_name(errors_pb2.FAILURE_CODE_HANDLER_DEADLINE)


class QueuedRunner:
    """Does claims of tasks. Whatever a handler raises is an outcome, but for the cancellation of its slot."""

    def __init__(
        self, config: Config, ways: Ways, lane: WorkerLane, clock: Clock, breakers: Breakers, logs: StepLogs
    ) -> None:
        self._ways = ways
        self._breakers = breakers
        self._terms = RunTerms(lane.report, self._void, clock, config.tasks.max_events, logs)
        self._clock = clock
        self._max_result = config.tasks.max_result_bytes
        self._longest_wait = seconds(config.fetcher.max_retry_after)

    async def __call__(self, slot: Slot) -> Outcome:
        """One attempt."""
        task = slot.claim.queued
        assert task is not None  # noqa: S101 - the kinds of claims were told apart before
        claim = slot.claim
        with tracing.job_span(
            queue=keys.QUEUE, job_id=task.job_id, parent=claim.traceparent, delivery=claim.token, task=task.task
        ) as span:
            outcome = await self._outcome(slot, task)
            span.outcome(outcome)
        return outcome

    async def _outcome(self, slot: Slot, task: QueuedTask) -> Outcome:
        given = self._ways.of(slot.claim, task)
        if isinstance(given, Failure):
            return given
        of_step = given.payload
        payload = payload_object(task.payload) if of_step is None else of_step.input
        circuit = given.way.circuit(payload)
        claim = slot.claim
        if not claim.circuit:
            claim.admission = self._breakers.standing(circuit)
        started = self._clock.monotonic()
        outcome: Outcome | None = None
        try:
            outcome = await self._attempt(slot, task, given, payload)
        finally:
            tell(self._breakers, circuit, claim, None if slot.interrupted else outcome)
            given.way.seconds.observe(self._clock.monotonic() - started)
        return outcome

    def late(self, claim: Claim, deadline: float) -> Failure:  # noqa: ARG002 - worded alike for every task
        """The outcome of an attempt that was stopped after `deadline` seconds."""
        return Failure(_DEADLINE, f"the attempt exceeded its deadline of {deadline:g} s")

    def canceled(self, claim: Claim) -> Failure:  # noqa: ARG002 - worded alike for every task
        """The outcome of an attempt whose job was canceled."""
        return Failure(_CANCELED, "the job was canceled")

    def _void(self, slot: Slot) -> None:
        """A report has told that the attempt is over: canceled, or somebody else's. The settlement tells which."""
        slot.interrupt(self.canceled(slot.claim))

    async def _attempt(self, slot: Slot, task: QueuedTask, given: Given, payload: Any) -> Outcome:
        way, of_step = given.way, given.payload
        run = HandlerRun(slot, task, self._terms, task.payload if of_step is None else of_step.raw)
        try:
            if way.is_plain:
                result = await in_thread(way.handler.run, payload, run)
            else:
                result = await way.handler.run(payload, run)
            outcome = self._returned(result)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - also `sys.exit()`: a handler's fault is its task's outcome
            outcome = failure_of(error, self._longest_wait, job_id=task.job_id, task=task.task)
        finally:
            run.finish()
        await run.flush()
        return outcome if run.failure is None else failure_of(run.failure, self._longest_wait)

    def _returned(self, result: Any) -> Outcome:
        if result is None:
            return Success()
        if inspect.iscoroutine(result):
            result.close()
        try:
            encoded = result.json if isinstance(result, IsolatedResult) else json_bytes(result)
        except ValueError as error:
            return Failure(HANDLER_RESULT, f"the result is no JSON: {error}")
        if len(encoded) > self._max_result:
            problem = f"the result has {len(encoded):,} bytes, and tasks.max_result_bytes allows {self._max_result:,}"
            return Failure(HANDLER_RESULT, problem)
        return Success(result=encoded)
