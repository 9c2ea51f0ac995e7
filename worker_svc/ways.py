"""How tasks of each kind are run: which handler, under which circuit breaker, and with what."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import Histogram

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.breakers import names
from kernel.errors import failure_name
from kernel.handlers import TaskHandler
from kernel.ledger.record import STEP
from kernel.queue.work.types import Claim, Failure
from kernel.telemetry import metrics
from worker_svc.steps import StepHandlers, StepPayload
from worker_svc.task_json import payload_object
from worker_svc.tasks import TaskHandlers
from worker_svc.tasks.endpoint import EndpointHandler

_UNKNOWN = failure_name(errors_pb2.FAILURE_CODE_HANDLER_UNKNOWN)
_PAYLOAD = failure_name(errors_pb2.FAILURE_CODE_VALIDATION_PAYLOAD)
_REFUSED = failure_name(errors_pb2.FAILURE_CODE_AUTH_SECRET_REFUSED)
_ELSEWHERE = 5.0
"""Seconds after which a step that this worker does not have is offered again, to whichever worker comes first."""
_OFFERS = 120
"""How often a step is offered before it fails for want of a worker that has it: some ten minutes."""
_DELIVERIES = (1 << 20) - 1


@dataclass(frozen=True, slots=True)
class Way:
    """How a task is run."""

    handler: TaskHandler
    circuit: Callable[[Any], str]
    """The name of its circuit breaker, by what the handler is given."""
    seconds: Histogram
    is_plain: bool
    """Its `run` is a plain function, which gets a thread."""


@dataclass(frozen=True, slots=True)
class Given:
    """A way, and what its handler is given."""

    way: Way
    payload: StepPayload | None = None
    """That of a step; None for that of the job as it is."""


class Ways:
    """The ways of a worker: one for each task that it runs itself, and one for each step that names a handler."""

    def __init__(self, tasks: TaskHandlers, steps: StepHandlers, refusal: Callable[[str, str], str]) -> None:
        """`refusal` says of a task and a tenant why that tenant may not have it; empty where it may."""
        self._refusal = refusal
        self._tasks = {name: _way(name, handler, circuit_of(handler)) for name, handler in tasks.items()}
        self._steps = steps
        self._of_steps = {step.circuit: _way(STEP, step.handler, _always(step.circuit)) for step in steps}

    def circuit(self, task: QueuedTask) -> str:
        """The name of the circuit breaker of a task that waits; empty where this worker would not run it."""
        if task.task == STEP:
            payload = StepPayload.read(task.payload)
            step = self._steps.find(payload) if payload is not None else None
            return step.circuit if step is not None else ""
        way = self._tasks.get(task.task)
        return way.circuit(payload_object(task.payload)) if way is not None else ""

    def of(self, claim: Claim, task: QueuedTask) -> Given | Failure:
        """The way of a task, or what its attempt comes to without one."""
        if task.task == STEP:
            return self._of_step(claim, task)
        way = self._tasks.get(task.task)
        if way is not None:
            refusal = self._refusal(task.task, task.tenant)
            return Failure(_REFUSED, f"the endpoint of {task.task!r} {refusal}") if refusal else Given(way)
        text = f"the task {task.task!r} is not configured here"
        # Of another task there is a dead letter, which is replayed when its worker is there; a run would have failed.
        return _elsewhere(claim, text) if task.flow else Failure(_UNKNOWN, text)

    def _of_step(self, claim: Claim, task: QueuedTask) -> Given | Failure:
        """A handler is looked up in the configuration of this worker alone, never by what a payload says."""
        payload = StepPayload.read(task.payload)
        if payload is None:
            return Failure(_PAYLOAD, "the payload is not that of a step: flow, step, handler, input")
        step = self._steps.find(payload)
        if step is not None:
            return Given(self._of_steps[step.circuit], payload)
        text = f"the step {payload.step} of the flow {payload.flow} has no handler {payload.handler!r} here"
        return _elsewhere(claim, text)


def _elsewhere(claim: Claim, text: str) -> Failure:
    """Workers are not all renewed at once, so one that does not have what an attempt at a step needs leaves it.

    That costs no attempt; if nobody has it, it fails in the end.
    """
    if claim.token & _DELIVERIES < _OFFERS:
        return Failure(_UNKNOWN, text, retry_after=_ELSEWHERE, counts=False)
    return Failure(_UNKNOWN, f"{text}, and no other worker has taken it")


def circuit_of(handler: TaskHandler) -> Callable[[Any], str]:
    """How the circuit breaker of a task is named, by its payload."""
    endpoint = handler.settings.endpoint
    if not endpoint:
        return _always(names.of_task(handler.settings.task))
    if isinstance(handler, EndpointHandler):
        return lambda payload: names.of_endpoint(endpoint, handler.model_of(payload))
    return _always(names.of_endpoint(endpoint, handler.settings.model))


def _always(circuit: str) -> Callable[[Any], str]:
    return lambda _: circuit


def _way(label: str, handler: TaskHandler, circuit: Callable[[Any], str]) -> Way:
    return Way(handler, circuit, metrics.TASK_SECONDS.labels(label), not inspect.iscoroutinefunction(handler.run))
