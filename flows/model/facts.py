"""What an event of a timeline says, read once for everyone who folds or projects it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds, values
from flows.model.events import Meta, data_of, members_of, meta_of
from flows.model.types import PLACE, STAMP

_OF_RUN: Final = frozenset((kinds.FLOW_START, *kinds.FLOW_ENDS))


@dataclass(slots=True)
class Fact:
    """An event with its meta and data at hand."""

    event: Event
    kind: str
    place: str
    """Its id; `PLACE` as long as it has none."""
    at: str
    """When it was stored; `STAMP` as long as it is not, whatever its producer wrote."""
    meta: Meta
    data: Mapping[str, Any]
    step: str
    """The step that it is about; empty where it is about the run alone."""

    def text(self, name: str) -> str:
        """A string of its data; empty where there is none."""
        value = self.data.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """A whole number of its data; 0 where there is none."""
        value = self.data.get(name)
        return value if type(value) is int else 0

    def json(self, name: str) -> bytes | None:
        """A member of its data as it was written, since numbers need not outlive being read; None for none."""
        if name not in self.data:
            return None
        if self._outlives_reading():
            return values.dump(self.data[name])
        try:
            return members_of(self.event).get(name)
        except ValueError:  # a key is there twice: no check would have let it in
            return None

    def _outlives_reading(self) -> bool:
        """Whether the data is written as we would write it, and so is each of its members.

        That is known in a tenth of the time that finding a member in the text takes.
        """
        try:
            return values.dump(self.data) == self.event.data
        except ValueError:
            return False


def fact_of(event: Event) -> Fact:
    """What `event` says. What it must hold is checked before it is stored (`flows.model.checks`), not here."""
    kind, meta, data, place = event.kind, meta_of(event), data_of(event), event.id
    at = event.ts if place else STAMP
    return Fact(event, kind, place or PLACE, at, meta, data, _step_of(kind, meta, data))


def _step_of(kind: str, meta: Meta, data: Mapping[str, Any]) -> str:
    if kind in _OF_RUN:  # `flow.failed` only mentions the step
        return ""
    if meta.step_key or kind == kinds.LOG:
        return meta.step_key
    key = data.get("stepKey")  # gates need not say it in their meta
    return key if isinstance(key, str) else ""
