"""Flows as they are defined: what a definition leaves out, the order of its steps, and where they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Backoff, Config, Flow, FlowGate, FlowStep
from kernel.redis import keys

_DAY: Final = Duration(seconds=24 * 3600)
"""The deadline of attempts and gates that name none."""
_NOTHING: Final = b"{}"


def with_defaults(config: Config, name: str) -> Flow:
    """A copy of a configured flow in which nothing is left to be looked up: a run keeps it. KeyError where none is."""
    if name not in config.flows:
        raise KeyError(name)
    flow = Flow()
    flow.CopyFrom(config.flows[name])
    for step in flow.steps.values():
        if step.HasField("gate"):
            _complete_gate(step.gate)
        if is_work(step):
            _complete_step(step, config)
    return flow


def _complete_step(step: FlowStep, config: Config) -> None:
    if not step.HasField("max_retries"):
        step.max_retries = config.worker.max_retries
    step.backoff.CopyFrom(backoff_of(step, config))
    if not step.HasField("deadline"):
        step.deadline.CopyFrom(_DAY)
    payload: bytes = getattr(step, "with")
    setattr(step, "with", payload or _NOTHING)
    step.options = step.options or _NOTHING


def _complete_gate(gate: FlowGate) -> None:
    if gate.reason == "time":
        return
    if not gate.HasField("deadline"):
        gate.deadline.CopyFrom(_DAY)
    gate.on_timeout = gate.on_timeout or "fail"


def backoff_of(step: FlowStep, config: Config) -> Backoff:
    """The delays between attempts: what the step leaves out is that of the workers."""
    found = Backoff()
    found.CopyFrom(config.worker.backoff)
    if step.backoff.HasField("base"):
        found.base.CopyFrom(step.backoff.base)
    if step.backoff.HasField("max"):
        found.max.CopyFrom(step.backoff.max)
    return found


def is_work(step: FlowStep) -> bool:
    """Whether the step has attempts; a step that has none only waits for its gate."""
    return bool(step.task or step.handler or step.job_type)


def queue_of_step(step: FlowStep) -> str:
    """Where the jobs of a step that is work are queued."""
    return keys.TASKS if step.job_type else keys.QUEUE


def order_of_steps(flow: Flow) -> list[str]:
    """The keys of the steps, each behind those that it needs; beside each other they stand in the order of the keys."""
    needs = {key: set(step.needs) for key, step in flow.steps.items()}
    ordered: dict[str, None] = {}
    left = sorted(needs)
    while left:
        ready = [key for key in left if needs[key] <= ordered.keys()]
        if not ready:
            raise ValueError(f"the steps {left} need each other in a circle, or one that is not there")
        ordered.update(dict.fromkeys(ready))
        left = [key for key in left if key not in ordered]
    return list(ordered)


def steps_before(steps: Mapping[str, FlowStep], key: str) -> frozenset[str]:
    """Every step that is completed before a step begins. A circle or an unknown need does no harm here."""
    found: set[str] = set()
    left = list(steps[key].needs)
    while left:
        need = left.pop()
        if need in steps and need not in found:
            found.add(need)
            left += steps[need].needs
    return frozenset(found)


def queue_of(flow: Flow) -> str:
    """The queue that the first of its steps is sent to; empty where it has only waits."""
    first = next((flow.steps[key] for key in order_of_steps(flow) if is_work(flow.steps[key])), None)
    return queue_of_step(first) if first is not None else ""
