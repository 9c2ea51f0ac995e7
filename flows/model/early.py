"""Log lines that come before their attempt has begun, as its run tells it: they are held until then.

A worker tells its lines as they are written; the engine records the start of an attempt when it hears of it. So that no
reader sees a line before the start, a line waits in the order of its run, behind which nobody waits. What lets it go is
the event that its attempt has begun or is over, or the end of its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from flows.model import kinds
from flows.model.events import meta_of
from flows.model.types import Write

MOST: Final = 5_000
"""Lines of a run that are held at most; the script has the same number, and a limit on their bytes."""
_BEGUN: Final = frozenset(
    (
        kinds.STEP_ATTEMPT_STARTED,
        kinds.STEP_ATTEMPT_COMPLETED,
        kinds.STEP_ATTEMPT_FAILED,
        kinds.STEP_COMPLETED,
        kinds.STEP_FAILED,
    )
)
"""Behind these an attempt has begun, or never will."""


class EarlyAttempt(NamedTuple):
    """An attempt at a step of a run. Where one has begun, all of a lower number have."""

    number: int
    step: str


def attempt_of(write: Write) -> EarlyAttempt | None:
    """The attempt that a log line waits for, or that has begun with this event; None for any other."""
    kind = write.event.kind
    if kind not in _BEGUN and not (kind == kinds.LOG and write.waits):
        return None
    meta = meta_of(write.event)
    return EarlyAttempt(meta.attempt, meta.step_key) if meta.step_key and meta.attempt > 0 else None


@dataclass(slots=True)
class Sorted:
    """What is written of an append, in which order, and what is held afterwards."""

    began: dict[str, int]
    """Step key -> the last attempt that has begun."""
    held: list[Write]
    room: int
    """Lines that the run may still have, the held ones not counted."""
    written: list[Write] = field(default_factory=list)
    fates: list[Literal["held", "dropped"] | int] = field(default_factory=list)
    """Of each write: what became of it, or its place in `written`."""

    def add(self, write: Write) -> None:
        """Takes the next write."""
        attempt = attempt_of(write)
        if write.event.kind == kinds.LOG:
            self._line(write, attempt)
            return
        if write.event.kind in kinds.FLOW_ENDS:
            self._release(self.held)
        self._write(write)
        if attempt:
            self.began[attempt.step] = max(attempt.number, self.began.get(attempt.step, 0))
            self._release([line for line in self.held if _is_of(line, attempt)])

    def _line(self, write: Write, attempt: EarlyAttempt | None) -> None:
        waits = attempt is not None and attempt.number > self.began.get(attempt.step, 0)
        if self.room <= 0 or (waits and len(self.held) >= MOST):
            self.fates.append("dropped")
            return
        self.room -= 1
        if waits:
            self.held.append(write)
            self.fates.append("held")
        else:
            self._write(write)

    def _write(self, write: Write) -> None:
        self.fates.append(len(self.written))
        self.written.append(write)

    def _release(self, lines: Iterable[Write]) -> None:
        released = list(lines)
        gone = {id(line) for line in released}
        self.written += released
        self.held = [line for line in self.held if id(line) not in gone]


def sorted_out(writes: Sequence[Write], began: Mapping[str, int], held: Sequence[Write], room: int) -> Sorted:
    """What an append comes to; changes nothing."""
    made = Sorted(dict(began), list(held), room)
    for write in writes:
        made.add(write)
    return made


def _is_of(line: Write, begun: EarlyAttempt) -> bool:
    own = attempt_of(line)
    return own is not None and own.step == begun.step and own.number <= begun.number
