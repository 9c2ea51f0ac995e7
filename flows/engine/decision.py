"""What was decided of a run, and what decisions are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import FlowStep
from fetchbox.flow.v1.event_pb2 import Event
from flows.definitions.definition import is_work, queue_of_step
from flows.engine.knowledge import Knowledge
from flows.model.course import Course, text
from flows.model.state import ended
from flows.model.types import Run
from kernel import places
from kernel.durations import millis

_ENVELOPE: Final = 512
"""Bytes of an event beside its result and the names in it, rounded up."""


_DAY_MS: Final = 24 * 3600 * 1000


def deadline_ms(duration: Duration) -> int:
    """A deadline of a definition in ms; a day where it has none."""
    return millis(duration) or _DAY_MS


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """Of the engine."""

    check_ms: int
    """How often a run is looked at whose jobs say nothing."""
    max_event_bytes: int


@dataclass(frozen=True, slots=True)
class Chance:
    """What is new each time it is asked for."""

    run_id: Callable[[], str]
    """Ids of attempts."""
    token: Callable[[], str]
    """Tokens of gates."""
    jitter: Callable[[], float]
    """From 0 to 1."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it was defined."""

    key: str
    spec: FlowStep

    @property
    def is_wait(self) -> bool:
        """Whether there is nothing to run."""
        return not is_work(self.spec)

    @property
    def queue(self) -> str:
        """Where its jobs are queued."""
        return queue_of_step(self.spec)


@dataclass(frozen=True, slots=True)
class Send:
    """An attempt whose job is to be made."""

    step_key: str
    run_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """A job that is to be canceled for a reason of its own, before anything is recorded of it."""

    run_id: str
    job_id: str
    code: str
    message: str


@dataclass(slots=True)
class Decision:
    """Filled while it is made. The events are published first, `stores` before them; all else follows them."""

    course: Course
    known: Knowledge
    settings: DecisionSettings
    chance: Chance
    loads: tuple[str, ...] = ()
    """Objects that are to be loaded before anything can be decided."""
    stores: dict[str, bytes] = field(default_factory=dict)
    """Objects that events refer to."""
    clears: list[str] = field(default_factory=list)
    """Fields of the order that are done with."""
    sends: list[Send] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    """What they come to is to be decided of at once."""
    stops: list[str] = field(default_factory=list)
    """Jobs of a run that has ended."""
    settled: list[str] = field(default_factory=list)
    """Task jobs whose end is recorded with these events: their records need not be kept for it any more."""
    waits: list[str] = field(default_factory=list)
    """Steps whose gates are to be found by webhooks or events."""
    unwaits: list[str] = field(default_factory=list)
    """Steps whose gates are not to be found any more."""
    next_ms: int | None = None
    """When to look again, by the clock of Redis; None: when something happens."""

    @property
    def events(self) -> list[Event]:
        """What is to be published."""
        return self.course.events

    @property
    def ends(self) -> bool:
        """Whether the run ends with these events."""
        return bool(self.events) and ended(self.course.state)

    def next(self, ms: int) -> None:
        """Looks again then at the latest."""
        self.next_ms = ms if self.next_ms is None else min(self.next_ms, ms)

    def look_again(self) -> None:
        """Looks again at once."""
        self.next(self.course.now_ms)

    def kept(self, name: str, value: bytes | None, *place: str) -> dict[str, bytes | None]:
        """A value as a member of an event's data; one that no event can hold as the key of an object.

        `place` is the place of the object beneath the run.
        """
        state = self.course.state
        names = 2 * (len(state.tenant) + len(state.flow_id)) + len(state.flow_name) + 2 * len(place[0])
        if value is None or len(value) <= self.settings.max_event_bytes - _ENVELOPE - names:
            return {name: value}
        key = object_key(self.known.order.run, *place)
        self.stores[key] = value
        return {f"{name}Key": text(key)}


def object_key(run: Run, *place: str) -> str:
    """Where something of a run lies that is too large for an event. All parts are key-safe."""
    return f"{places.flow(run.tenant, run.flow_id)}{'/'.join(place)}.json"
