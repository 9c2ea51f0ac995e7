"""What the templates of a run see: its input, and what came before (the comment of `fetchbox.config.v1.Flow`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fetchbox.errors.v1 import errors_pb2 as codes
from flows.definitions.templates import TemplateError, render, render_text
from flows.model import values
from flows.model.course import Course, Problem
from flows.model.order import Order
from flows.model.types import StepState
from kernel.errors import failure_name

_TEMPLATE: Final = failure_name(codes.FAILURE_CODE_VALIDATION_TEMPLATE)


class UnloadedError(Exception):
    """A template speaks of what lies in the object store, under `keys`."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(*keys)
        self.keys = keys


class Knowledge:
    """Of one run, as it stands in the course of a decision."""

    def __init__(self, order: Order, course: Course, *objects: Mapping[str, bytes]) -> None:
        """`objects`: by key, what was loaded, or is to be stored, of what the run's events refer to."""
        self.order = order
        self._course = course
        self._objects = objects

    def render(self, template: bytes, secrets: Mapping[str, str] | None = None) -> bytes | Problem:
        """The JSON that a template comes to. `secrets`: by the step behind the gate, those that it may mention."""
        try:
            return render(template, self._scope(template, secrets or {}))
        except TemplateError as error:
            return Problem(_TEMPLATE, str(error))

    def render_text(self, template: str) -> str | Problem:
        """The text that a template of text comes to."""
        try:
            return render_text(template, self._scope(template.encode(), {}))
        except TemplateError as error:
            return Problem(_TEMPLATE, str(error))

    def object(self, key: str) -> bytes:
        """What lies in the object store under a key. Raises `UnloadedError`."""
        self._want([key])
        return next(objects[key] for objects in self._objects if key in objects)

    def _scope(self, template: bytes, secrets: Mapping[str, str]) -> dict[str, Any]:
        """Only what the template may speak of, as results may be large."""
        order, run = self.order, self.order.run
        scope: dict[str, Any] = {"flow": {"id": run.flow_id, "name": run.flow_name, "tenant": order.tenant}}
        if b"input" in template:
            scope["input"] = values.load(order.input)
        steps = self._course.state.steps.values()
        if b"steps" in template:
            self._want([step.result_key for step in steps])
            scope["steps"] = {step.key: self._step(step) for step in steps if step.status == "completed"}
        if b"gates" in template:
            self._want([step.gate.payload_key for step in steps if step.gate is not None])
            scope["gates"] = {step.key: {"payload": self._payload(step)} for step in steps if step.gate is not None}
            for key, secret in secrets.items():
                scope["gates"].setdefault(key, {})["secret"] = secret
        return scope

    def _step(self, step: StepState) -> dict[str, Any]:
        return {"result": self._value(step.result, step.result_key), "jobId": step.job_id}

    def _payload(self, step: StepState) -> Any:
        gate = step.gate
        return self._value(gate.payload, gate.payload_key) if gate is not None else None

    def _value(self, stored: bytes | None, key: str) -> Any:
        raw = self.object(key) if key else stored
        return None if raw is None else values.load(raw)

    def _want(self, keys: list[str]) -> None:
        missing = tuple(key for key in keys if key and not any(key in objects for objects in self._objects))
        if missing:
            raise UnloadedError(missing)
