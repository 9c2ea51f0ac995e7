"""The handlers that the steps of flows name, made once at start: those of this worker's own configuration alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import Config, FlowStep
from kernel.breakers import names
from kernel.config.loading import ConfigError
from kernel.durations import seconds
from kernel.handlers import TaskHandler, TaskSettings, describe, find_class, json_object, where_to_look
from kernel.handlers.registry import PROCESS
from kernel.isolation.pool import ChildPool
from kernel.ledger.record import STEP
from kernel.queue.work.types import Claim
from worker_svc.isolation.tasks import IsolatedTask
from worker_svc.steps.payload import StepPayload
from worker_svc.tasks.lifecycle import Lifecycle
from worker_svc.tasks.registry import ENTRY_POINTS


@dataclass(frozen=True, slots=True)
class OwnStep:
    """A step that names a handler."""

    handler: TaskHandler
    path: str
    """How the configuration names the handler."""
    circuit: str
    """The name of its circuit breaker."""
    deadline: float | None
    """Seconds for one attempt; None for those of the worker."""


class StepHandlers(Lifecycle):
    """Flow and step -> handler, as a duty. Each step has an instance of its own, since its options are its own."""

    def __init__(self, config: Config, pool: ChildPool | None = None) -> None:
        """`pool` has the children of those that run in processes; without it, all are made here.

        `ConfigError` names the key of a handler that cannot be had.
        """
        for name, flow in config.flows.items():
            for key, step in flow.steps.items():
                if step.isolation == PROCESS and not step.handler:
                    raise ConfigError(f"flows.{name}.steps.{key}.isolation", "is for steps that name a handler")
        self._steps = {
            (name, key): _made(config, name, key, step, pool)
            for name, flow in config.flows.items()
            for key, step in flow.steps.items()
            if step.handler
        }
        super().__init__("step_handlers", [step.handler for step in self._steps.values()])

    def find(self, payload: StepPayload) -> OwnStep | None:
        """The step of a payload; None where this worker's configuration does not have it with this handler."""
        found = self._steps.get((payload.flow, payload.step))
        return found if found is not None and found.path == payload.handler else None

    def deadline(self, claim: Claim) -> float | None:
        """How long an attempt may take, in seconds; None where its step does not say, or is not known here."""
        payload = StepPayload.read(claim.payload)
        found = self.find(payload) if payload is not None else None
        return found.deadline if found is not None else None

    def __iter__(self) -> Iterator[OwnStep]:
        return iter(self._steps.values())


def _made(config: Config, flow: str, key: str, step: FlowStep, pool: ChildPool | None) -> OwnStep:
    place = f"flows.{flow}.steps.{key}"
    settings = _settings(config, place, step)
    try:
        handler = _handler(f"{place}.handler", step, settings, pool)
    except Exception as error:
        rule = f"{step.handler!r} cannot be used: {describe(error)}{where_to_look(error)}"
        raise ConfigError(f"{place}.handler", rule) from error
    deadline = seconds(step.deadline) if step.HasField("deadline") else None
    return OwnStep(handler, step.handler, names.of_task(f"{STEP}.{flow}.{key}"), deadline)


def _handler(place: str, step: FlowStep, settings: TaskSettings, pool: ChildPool | None) -> TaskHandler:
    kind = find_class(step.handler, ENTRY_POINTS, TaskHandler)
    if step.isolation == PROCESS and pool is not None:
        return IsolatedTask(settings, place, step.handler, ENTRY_POINTS, pool)
    return kind(settings)


def _settings(config: Config, place: str, step: FlowStep) -> TaskSettings:
    try:
        options = json_object(step.options)
    except ValueError as error:
        raise ConfigError(f"{place}.options", describe(error)) from error
    return TaskSettings(
        task=STEP,
        headers={"user-agent": config.fetcher.user_agent},
        options=options,
        connect_timeout=seconds(config.fetcher.connect_timeout),
        read_timeout=seconds(config.fetcher.read_timeout),
        max_retry_after=seconds(config.fetcher.max_retry_after),
        max_result_bytes=config.tasks.max_result_bytes,
    )
