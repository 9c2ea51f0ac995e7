"""A run while something is decided about it: what it would be after the events that are to be published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fetchbox.flow.v1.event_pb2 import Event
from flows.model.codec import millis
from flows.model.copies import flow_copy, step_copy
from flows.model.events import draft
from flows.model.state import apply
from flows.model.types import STAMP, FlowState, StepState
from flows.model.values import joined

_CODE_CHARACTERS: Final = 128
_MESSAGE_BYTES: Final = 4096
"""As JSON. The smallest `flow_engine.max_event_bytes` has room for it, so that a run can always tell why it failed."""
_LONGEST_LETTER: Final = 6
"""Bytes that one character takes in JSON at most, as `\\u0000`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something failed, as events tell it (`fetchbox.flow.v1.Problem`)."""

    code: str
    message: str

    @property
    def json(self) -> bytes:
        """As much of the message as takes 4096 bytes, without what UTF-8 cannot hold: whatever a handler raised fits.

        The code of another's worker may be any text.
        """
        message = self.message[:_MESSAGE_BYTES].encode(errors="replace").decode()
        while (excess := len(orjson.dumps(message)) - _MESSAGE_BYTES) > 0:
            message = message[: -max(1, excess // _LONGEST_LETTER)]
        return orjson.dumps({"code": self.code[:_CODE_CHARACTERS], "message": message})


class Course:
    """Collects events, and is the run as it will be after them. What it began with is not changed."""

    def __init__(self, state: FlowState, now_ms: int = 0) -> None:
        """`now_ms`: by the clock of Redis; what has no time yet counts as happening then."""
        self.state = state
        self.now_ms = now_ms
        self.events: list[Event] = []
        self._own: set[str] = set()
        """The steps that are copies already."""

    def step(self, key: str) -> StepState:
        """A step as it stands; it is not to be changed."""
        return self.state.steps.get(key) or StepState(key)

    def add(self, event: Event, step_key: str = "") -> None:
        """One more event; `step_key`: the step that it is about."""
        if not self.events:
            self.state = flow_copy(self.state)
        if step_key:
            self._own_step(step_key)
        self.events.append(event)
        apply(self.state, event)

    def _own_step(self, key: str) -> None:
        """Makes a step one that may be changed."""
        if key not in self._own:
            self._own.add(key)
            step = self.state.steps.get(key)
            if step is not None:
                self.state.steps[key] = step_copy(step)

    def tell(self, kind: str, members: Mapping[str, bytes | None]) -> None:
        """An event of the run. `members` are JSON, put into its data as they are; None leaves one out."""
        self.add(draft(kind, joined(members), self._meta(), self.state.queue))

    def tell_step(self, kind: str, key: str, members: Mapping[str, bytes | None] | None = None, **more: Any) -> None:
        """An event of a step, about its present attempt where it has one. `more`: keys of its meta; None drops one."""
        step = self.step(key)
        meta = self._meta()
        meta["stepKey"] = key
        if step.run_id:
            meta |= {"stepRunId": step.run_id, "attempt": step.number}
        if step.job_id:
            meta["jobId"] = step.job_id
        if step.queue:
            meta["queue"] = step.queue
        meta |= more
        meta = {name: value for name, value in meta.items() if value is not None}
        data = joined({"stepKey": orjson.dumps(key), **(members or {})})
        self.add(draft(kind, data, meta, meta.get("queue", "")), key)

    def at(self, text: str) -> int:
        """A time of the state in ms; of what is only to be published, now."""
        return self.now_ms if text == STAMP else millis(text)

    def _meta(self) -> dict[str, Any]:
        return {"flowId": self.state.flow_id, "flowName": self.state.flow_name}


def text(value: str) -> bytes:
    """A string as JSON."""
    return orjson.dumps(value)
