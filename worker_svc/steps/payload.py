"""The payload of the task `step`: which handler of which flow is to run, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flows.model import values

_NOTHING = b"{}"


@dataclass(frozen=True, slots=True)
class StepPayload:
    """`{"flow": …, "step": …, "handler": …, "input": …}`, as the engine of flows writes it."""

    flow: str
    """The name of the flow."""
    step: str
    """The key of the step."""
    handler: str
    """As the definition of the run names it. It is compared with the worker's own configuration, and never imported."""
    raw: bytes
    """What the handler is given: JSON, byte for byte."""

    @classmethod
    def read(cls, payload: bytes) -> StepPayload | None:
        """The payload; None where it is none."""
        try:
            found = values.members(payload)
            flow, step, handler = (values.load(found[name]) for name in ("flow", "step", "handler"))
        except (KeyError, ValueError):
            return None
        if not (isinstance(flow, str) and isinstance(step, str) and isinstance(handler, str)):
            return None
        return cls(flow, step, handler, found.get("input", _NOTHING))

    @property
    def input(self) -> Any:
        """What the handler is given."""
        return values.load(self.raw)
