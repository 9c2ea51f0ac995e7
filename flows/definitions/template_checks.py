"""What is wrong with the templates of a flow: none may name what is not there. Found when configuration is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fetchbox.config.v1.config_pb2 import Flow, FlowStep
from flows.definitions.definition import is_work, steps_before
from flows.definitions.templates import Expression, TemplateError, expressions, parts_of, text_expressions
from flows.model import values
from flows.model.codec import millis

_FLOW: Final = ("id", "name", "tenant")
_PARTS: Final = {"steps": ("result", "jobId"), "gates": ("payload", "secret")}
_SAFE: Final = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a template stands: what it may speak of."""

    flow: Flow
    flow_parts: tuple[str, ...] = _FLOW
    steps: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    secrets: frozenset[str] | None = None
    """The gates that cannot have been settled yet; None where no secret may be told."""


def checks(flow: Flow, key: str) -> Iterator[tuple[str, str]]:
    """Every wrong template of a flow: its key and what is wrong."""
    yield from _told(f"{key}.id", lambda: _id(flow))
    everything = frozenset(flow.steps)
    if flow.output:
        yield from _told(f"{key}.output", lambda: _json(flow.output, _Place(flow, _FLOW, everything, everything)))
    for step_key in sorted(flow.steps):
        yield from _step(flow, step_key, f"{key}.steps.{step_key}")


def _step(flow: Flow, step_key: str, key: str) -> Iterator[tuple[str, str]]:
    step = flow.steps[step_key]
    before = steps_before(flow.steps, step_key)
    at_gate = _Place(flow, _FLOW, before, before)
    payload: bytes = getattr(step, "with")
    if payload:
        own = frozenset({step_key})
        place = _Place(flow, _FLOW, before, before | own, frozenset(flow.steps) - before - own)
        yield from _told(f"{key}.with", lambda: _payload(payload, step, place))
    if step.HasField("gate"):
        yield from _told(f"{key}.gate.key", lambda: _text(step.gate.key, at_gate))
        yield from _told(f"{key}.gate.until", lambda: _until(step.gate.until, at_gate))


def _told(key: str, find: Callable[[], Iterator[str]]) -> Iterator[tuple[str, str]]:
    """What is found in one template; what cannot be read is one finding."""
    try:
        found = list(find())
    except TemplateError as error:
        found = [str(error)]
    for rule in dict.fromkeys(found):
        yield key, rule


def _id(flow: Flow) -> Iterator[str]:
    yield from _text(flow.id, _Place(flow, ("name", "tenant")))
    texts = [part for part in parts_of(flow.id) if isinstance(part, str)]
    if not all(_SAFE.fullmatch(text) for text in texts):
        yield "must consist of letters, digits, '-' and '_', beside its templates"


def _payload(payload: bytes, step: FlowStep, place: _Place) -> Iterator[str]:
    yield from _json(payload, place)
    value = values.load(payload)
    is_expression = isinstance(value, str) and any(isinstance(part, Expression) for part in parts_of(value))
    if is_work(step) and not step.handler and not isinstance(value, dict) and not is_expression:
        yield "must be a table"


def _until(template: str, place: _Place) -> Iterator[str]:
    yield from _text(template, place)
    if template and not any(text_expressions(template)):
        try:
            millis(template)
        except ValueError:
            yield f"{template!r} is no ISO 8601 time with a zone, like 2025-10-28T12:34:56Z"


def _json(template: bytes, place: _Place) -> Iterator[str]:
    for expression in expressions(template):
        yield from _expression(expression, place)


def _text(template: str, place: _Place) -> Iterator[str]:
    for expression in text_expressions(template):
        yield from _expression(expression, place)


def _expression(expression: Expression, place: _Place) -> Iterator[str]:
    for path in sorted(expression.paths):
        rule = _path(path, place)
        if rule:
            yield f"${{{expression.source}}} {rule}"


def _path(path: tuple[str, ...], place: _Place) -> str:
    """What is wrong with one path; empty for nothing."""
    root = path[0] if path else "@"
    if root == "input":
        return ""
    if root == "flow":
        return "" if path[1:2] in {(), *((part,) for part in place.flow_parts)} else _unknown(path, place.flow_parts)
    if root not in _PARTS:
        return f"names {root!r}; templates see input, flow, steps and gates"
    return _part(path, place) if len(path) > 1 else ""


def _part(path: tuple[str, ...], place: _Place) -> str:
    root, key, *rest = path
    part: Any = rest[0] if rest else None
    step = place.flow.steps.get(key)
    if step is None:
        return f"names {key!r}, which is no step of this flow"
    if part is not None and part not in _PARTS[root]:
        return _unknown(path, _PARTS[root])
    if root == "steps":
        return "" if key in place.steps else f"names the step {key!r}, which does not come before"
    if not step.HasField("gate"):
        return f"names the gate of {key!r}, which has none"
    if part == "secret":
        return _secret(key, step, place)
    return "" if key in place.gates else f"names the gate of {key!r}, which does not come before"


def _secret(key: str, step: FlowStep, place: _Place) -> str:
    if place.secrets is None:
        return "tells a secret where others can read it; only `with` may"
    if step.gate.reason not in {"webhook", "manual"} or step.gate.open:
        return f"wants a secret of the gate of {key!r}, which is not opened by one"
    return "" if key in place.secrets else f"wants a secret of the gate of {key!r}, which has ended by then"


def _unknown(path: tuple[str, ...], known: tuple[str, ...]) -> str:
    return f"names {'.'.join(path)!r}; known there: {', '.join(known)}"
