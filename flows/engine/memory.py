"""What an engine remembers of runs, so that it reads each timeline once. All of it can be read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fetchbox.flow.v1.event_pb2 import Event
from flows.engine.job_facts import JobFacts
from flows.model.state import apply
from flows.model.types import FlowState
from kernel.redis.keys import RunKey

_RUNS: Final = 4096
_BYTES: Final = 64 << 20
_OF_EVENT: Final = 256
"""What an event leaves behind beside its data, roughly."""


@dataclass(slots=True)
class Remembered:
    """One run."""

    state: FlowState = field(default_factory=FlowState)
    jobs: dict[str, JobFacts] = field(default_factory=dict)
    """By stepRunId: what only sending them, or reading their results, has told."""
    objects: dict[str, bytes] = field(default_factory=dict)
    """By key: what was loaded for its templates, or stored for its events, since it was claimed."""
    faults: int = 0
    """Looks that came to nothing, one after the other."""
    postponed: int = 0
    """Sends that were put off, one after the other."""
    size: int = 0
    counted: int = 0
    """How much of the size the memory as a whole knows of."""

    def fold(self, events: Iterable[Event]) -> None:
        """Adds what was read or stored."""
        for event in events:
            apply(self.state, event)
            self.size += len(event.data) + _OF_EVENT


class RunMemory:
    """The runs that an engine has looked at last, bounded in number and bytes."""

    def __init__(self) -> None:
        self._runs: OrderedDict[RunKey, Remembered] = OrderedDict()
        self._size = 0

    def of(self, key: RunKey) -> Remembered:
        """What is remembered of a run; nothing yet of one that is new."""
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = Remembered()
        else:
            self._runs.move_to_end(key)
        return found

    def count(self, run: Remembered) -> None:
        """A run has grown; forgets others, the longest unseen first."""
        self._size += run.size - run.counted
        run.counted = run.size
        while len(self._runs) > 1 and (len(self._runs) > _RUNS or self._size > _BYTES):
            _, oldest = self._runs.popitem(last=False)
            self._size -= oldest.counted
            oldest.counted = oldest.size  # whoever still looks at it adds nothing to what is remembered

    def forget(self, key: RunKey) -> None:
        """Forgets a run."""
        found = self._runs.pop(key, None)
        if found is not None:
            self._size -= found.counted
