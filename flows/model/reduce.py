"""What projections come to: pure functions over their patches, in the order of their streams.

A field that is there replaces the one before, `null` clears it, a delta is added to its count, and `steps` of a
snapshot are merged one by one. Reducing all patches of a run gives what `flows.model.views` shows of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds
from flows.model.events import data_of

View = dict[str, Any]

_COUNTS: Final = {"logsCountDelta": "logsCount", "triesCountDelta": "triesCount"}


def reduce_snapshot(patches: Iterable[Event]) -> View:
    """The snapshot of a run."""
    reducer = SnapshotReducer()
    for event in patches:
        reducer.add(event)
    return reducer.value


def reduce_steps(patches: Iterable[Event]) -> dict[str, View]:
    """The steps of a run, by step."""
    reducer = StepsReducer()
    for event in patches:
        reducer.add(event)
    return reducer.value


def reduce_runs(entries: Iterable[Event]) -> list[View]:
    """The runs of a flow, oldest first, each once."""
    reducer = RunsReducer()
    for event in entries:
        reducer.add(event)
    return reducer.value


class SnapshotReducer:
    """The snapshot of a run, patch by patch."""

    def __init__(self) -> None:
        self.value: View = {}
        """The fields that are known."""

    def add(self, event: Event) -> None:
        """One more record of the stream; other kinds than patches change nothing."""
        if event.kind != kinds.FLOW_SNAPSHOT_PATCH:
            return
        data = data_of(event)
        steps = data.pop("steps", None)
        _merge(self.value, data)
        if isinstance(steps, Mapping):
            known = self.value.setdefault("steps", {})
            for key, step in steps.items():
                _merge(known.setdefault(key, {}), step)


class StepsReducer:
    """The steps of a run, patch by patch."""

    def __init__(self) -> None:
        self.value: dict[str, View] = {}

    def add(self, event: Event) -> None:
        """One more record of the stream; other kinds than patches change nothing."""
        if event.kind == kinds.FLOW_STEP_PATCH:
            data = data_of(event)
            _merge(self.value.setdefault(data["stepKey"], {}), data)


class RunsReducer:
    """The runs of a flow, entry by entry."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], View] = {}

    @property
    def value(self) -> list[View]:
        """The runs, oldest first."""
        return list(self._runs.values())

    def add(self, event: Event) -> None:
        """One more record of the stream. An entry for an event that has one already changes nothing.

        Ids of events are unique within their streams, so of two entries with the same `sourceId` the second is another
        run's unless it has the same `id`.
        """
        if event.kind == kinds.FLOW_RUN_INDEXED:
            data = data_of(event)
            self._runs.setdefault((data["id"], data["sourceId"]), data)


def _merge(view: MutableMapping[str, Any], fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        count = _COUNTS.get(name)
        if count is not None:
            view[count] = view.get(count, 0) + value
        elif value is None:
            view.pop(name, None)
        else:
            view[name] = value
