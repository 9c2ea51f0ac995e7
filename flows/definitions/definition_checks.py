"""What is wrong with the flows of a configuration, beyond the rules of the schema. Each finding names its key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from buf.validate import validate_pb2
from fetchbox.config.v1.config_pb2 import Config, Flow, FlowGate, FlowStep
from fetchbox.flow.v1.event_pb2 import Event
from flows.definitions import template_checks
from flows.definitions.definition import backoff_of, is_work
from flows.model.kinds import RESERVED
from kernel.config.loading import also_check

Finding = tuple[str, str]
"""A key, such as `flows.harvest.steps.fetch.needs`, and what is wrong there."""

_OF_GATES: Final[Mapping[str, frozenset[str]]] = {
    "time": frozenset({"delay", "until"}),
    "webhook": frozenset({"channel", "key", "deadline", "on_timeout", "open"}),
    "event": frozenset({"channel", "key", "deadline", "on_timeout"}),
    "manual": frozenset({"deadline", "on_timeout"}),
}
"""What a gate may say, by its reason."""
_OF_WORK: Final = ("with", "options", "max_retries", "backoff", "deadline", "allow_partial")
_KIND: Final = re.compile(
    Event.DESCRIPTOR.fields_by_name["kind"].GetOptions().Extensions[validate_pb2.field].string.pattern
)


@also_check
def checks(config: Config) -> Iterator[Finding]:
    """Every broken rule of the flows."""
    for name in sorted(config.flows):
        flow, key = config.flows[name], f"flows.{name}"
        for step_key in sorted(flow.steps):
            yield from _step(config, flow, step_key, f"{key}.steps.{step_key}")
        yield from _circles(flow, key)
        yield from template_checks.checks(flow, key)


def _step(config: Config, flow: Flow, step_key: str, key: str) -> Iterator[Finding]:
    step = flow.steps[step_key]
    for need in step.needs:
        if need not in flow.steps:
            yield f"{key}.needs", f"names {need!r}, which is no step of this flow"
    yield from (_work if is_work(step) else _wait)(config, step, key)
    if step.HasField("gate"):
        yield from _gate(step.gate, f"{key}.gate")


def _work(config: Config, step: FlowStep, key: str) -> Iterator[Finding]:
    kinds = [name for name in ("task", "handler", "job_type") if getattr(step, name)]
    if len(kinds) > 1:
        yield key, f"has {' and '.join(kinds)}: a step is one of them"
    configured = {field.name for field, _ in config.tasks.ListFields()}
    if step.task and step.task not in configured:
        yield f"{key}.task", f"names {step.task!r}, which is not configured: add [tasks.{step.task}]"
    if step.job_type and step.job_type not in config.job_types:
        yield f"{key}.job_type", f"names {step.job_type!r}, which is not under [job_types]"
    if step.options and not step.handler:
        yield f"{key}.options", "is for a step with a handler; tasks and job types have options of their own"
    if step.allow_partial and not step.job_type:
        yield f"{key}.allow_partial", "is for a step with a job_type"
    backoff = backoff_of(step, config)
    if backoff.base.ToNanoseconds() > backoff.max.ToNanoseconds():
        yield f"{key}.backoff.base", "must not be longer than its max"


def _wait(_config: Config, step: FlowStep, key: str) -> Iterator[Finding]:
    if not step.HasField("gate"):
        yield key, "has nothing to do: give it a task, a handler or a job_type, or a gate to wait for"
    for name in _OF_WORK:
        if _is_set(step, name):
            yield f"{key}.{name}", "is for a step with a task, a handler or a job_type; this one only waits"


def _gate(gate: FlowGate, key: str) -> Iterator[Finding]:
    allowed = _OF_GATES.get(gate.reason)
    if allowed is None:
        return  # the rules of the schema say so
    for field, _ in gate.ListFields():
        if field.name not in {*allowed, "reason"}:
            yield f"{key}.{field.name}", f"is not for a gate that waits for {gate.reason!r}"
    if gate.reason == "time" and bool(gate.until) == gate.HasField("delay"):
        yield key, "has delay and until: give one of them" if gate.until else "needs a delay, or until when"
    if "channel" in allowed and not gate.channel:
        yield f"{key}.channel", f"is required of a gate that waits for {gate.reason!r}"
    if gate.reason == "event" and gate.channel:
        if not _KIND.fullmatch(gate.channel):
            yield f"{key}.channel", "must be the kind of an event, in dot.case, for instance `order.paid`"
        elif gate.channel.startswith(RESERVED):
            yield f"{key}.channel", f"{gate.channel!r} is a kind of FetchBox's own: nobody can publish it"


def _is_set(step: FlowStep, name: str) -> bool:
    return any(field.name == name for field, _ in step.ListFields())


def _circles(flow: Flow, key: str) -> Iterator[Finding]:
    """One circle, if there is any: the others show once it is gone."""
    seen: set[str] = set()
    for start in sorted(flow.steps):
        circle = _circle(flow.steps, start, [], seen)
        if circle:
            yield f"{key}.steps.{circle[0]}.needs", f"makes a circle: {' -> '.join(circle)}"
            return


def _circle(steps: Mapping[str, Any], key: str, path: list[str], seen: set[str]) -> list[str]:
    """The first circle that the needs of a step lead into; a flow has at most 100 steps, so this goes no deeper."""
    if key in path:
        return [*path[path.index(key) :], key]
    if key in seen or key not in steps:
        return []
    seen.add(key)
    for need in steps[key].needs:
        if circle := _circle(steps, need, [*path, key], seen):
            return circle
    return []
