"""What an engine does about the gate of a step: it places it and settles it. What they give is why that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import orjson

from fetchbox.config.v1.config_pb2 import FlowGate
from fetchbox.errors.v1 import errors_pb2 as codes
from flows.engine.decision import Decision, Step, deadline_ms, object_key
from flows.gates.deliveries import Hit, settled
from flows.gates.payloads import SHARED
from flows.model import codec, kinds
from flows.model.course import Problem, text
from flows.model.state import released
from flows.model.types import GateState
from kernel.durations import millis
from kernel.errors import failure_name
from kernel.objects import is_uri

_TEMPLATE: Final = failure_name(codes.FAILURE_CODE_VALIDATION_TEMPLATE)
_TIMEOUT: Final = failure_name(codes.FAILURE_CODE_SYSTEM_GATE_TIMEOUT)
_CANCELED: Final = failure_name(codes.FAILURE_CODE_SYSTEM_GATE_CANCELED)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, which no ISO time goes beyond."""
_KEY_CHARACTERS: Final = 512
"""What `PublishEvent` and `ReceiveWebhook` allow."""


def place(made: Decision, step: Step) -> Problem | None:
    """Places the gate before a step whose needs are completed."""
    gate = step.spec.gate
    until = _until(made, gate)
    if isinstance(until, Problem):
        return until
    key = made.known.render_text(gate.key)
    if isinstance(key, Problem):
        return key
    if len(key) > _KEY_CHARACTERS:
        return Problem(
            _TEMPLATE, f"`key` came to {len(key):,} characters; no delivery names more than {_KEY_CHARACTERS}"
        )
    members = {
        "reason": text(gate.reason),
        "until": text(codec.iso(min(until, _LAST_MS))),
        "channel": text(gate.channel) if gate.channel else None,
        "key": text(key) if gate.channel else None,
        "token": text(made.chance.token()),
    }
    made.course.tell_step(kinds.STEP_AWAIT_SCHEDULED, step.key, members)
    return None


def _until(made: Decision, gate: FlowGate) -> int | Problem:
    """When a gate that is placed now is over, in ms."""
    if gate.reason != "time":
        return made.course.now_ms + deadline_ms(gate.deadline)
    if not gate.until:
        return made.course.now_ms + millis(gate.delay)
    until = made.known.render_text(gate.until)
    if isinstance(until, Problem):
        return until
    try:
        return codec.millis(until)
    except ValueError:
        return Problem(_TEMPLATE, f"`until` came to {until!r}, which is no ISO 8601 time with a zone")


def settle(made: Decision, step: Step) -> Problem | None:
    """Settles the gate of a step, if it is open and something has settled it; what was delivered goes before time."""
    gate = made.course.step(step.key).gate
    if gate is None or gate.status != "waiting":
        return None if gate is None or released(gate) else _unreleased(gate)
    hit = made.known.order.hits.get(step.key)
    if hit is not None:
        _trigger(made, step, gate, hit)
    elif made.course.now_ms >= codec.millis(gate.until):
        return _time_out(made, step, gate)
    else:
        made.next(codec.millis(gate.until))
        if gate.channel and step.key not in made.known.order.waits:
            made.waits.append(step.key)
    return None


def complete_wait(made: Decision, step: Step) -> None:
    """The step was nothing but its gate: what came with the release is its result."""
    gate = made.course.step(step.key).gate
    members: dict[str, bytes | None] = {}
    if gate is not None:
        members = {"result": gate.payload, "resultKey": text(gate.payload_key) if gate.payload_key else None}
    made.course.tell_step(kinds.STEP_COMPLETED, step.key, members)


def _trigger(made: Decision, step: Step, gate: GateState, hit: bytes) -> None:
    opened_by = _owned(made, step, Hit.decode(hit))
    made.course.tell_step(kinds.STEP_AWAIT_TRIGGERED, step.key, opened_by.release(gate.token))
    _unregister(made, step, gate)


def _owned(made: Decision, step: Step, hit: Hit) -> Hit:
    """The same with a payload of the run's own: that of many gates is not kept as long as a run may take."""
    if not is_uri(hit.payload_key) and not hit.payload_key.startswith(SHARED):  # the latter is of an older release
        return hit
    name = hit.payload_key.rpartition("/")[2].removesuffix(".json")
    key = object_key(made.known.order.run, step.key, name)
    made.stores[key] = made.known.object(hit.payload_key)
    return replace(hit, payload_key=key)


def _time_out(made: Decision, step: Step, gate: GateState) -> Problem | None:
    stood = max(0, made.course.now_ms - made.course.at(gate.placed_at))
    told = {"token": text(gate.token), "elapsedMs": orjson.dumps(stood)}
    made.course.tell_step(kinds.STEP_AWAIT_TIMEOUT, step.key, told)
    _unregister(made, step, gate)
    if gate.reason == "time":
        return None
    if step.spec.gate.on_timeout == "continue":
        by = {"by": text("timeout"), "token": text(gate.token)}
        made.course.tell_step(kinds.STEP_AWAIT_TRIGGERED, step.key, by)
        return None
    return Problem(_TIMEOUT, f"nobody opened the gate in {stood / 1000:g} s")


def _unregister(made: Decision, step: Step, gate: GateState) -> None:
    made.clears += settled(step.key)
    if gate.channel:
        made.unwaits.append(step.key)


def _unreleased(gate: GateState) -> Problem:
    if gate.status == "timeout":
        return Problem(_TIMEOUT, "nobody opened the gate in time")
    return Problem(_CANCELED, "the gate was cancelled")
