"""What retention has decided: for every object, and for days of which a commit is to be written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum

from kernel.objects import ObjectInfo
from pipeline.lake.compaction import Compaction
from pipeline.lake.contents import Day


class Verdict(StrEnum):
    """What becomes of an object."""

    KEEP = "keep"
    DROP = "drop"
    COMPACT = "compact"
    """Its rows go into a new file; it stays until they are there, and `raw_keep` longer."""
    RETIRE = "retire"
    """Its rows no longer count from now on: a commit says so, and `raw_keep` later it is dropped."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one object, and why."""

    info: ObjectInfo
    verdict: Verdict
    why: str
    area: str
    """`raw/tasks`, `compact/logs`, `quarantine/dlq`, `epochs/tasks`, `ledger`, `retention` or `unknown`."""
    day: date | None = None
    counts: bool = False
    """Whether readers read its rows: what no longer counts, or not yet, is not held against a size cap."""
    pinned: bool = False
    """Whether it stays even when its day is dropped."""
    order: int = 0
    """What has a lower one is deleted earlier. The newest commit goes first, so that what it stood for counts again
    until that is deleted, too: no reader ever finds a commit whose files are gone."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """A day that is to be compacted."""

    table: str
    day: date
    generation: int
    inputs: tuple[ObjectInfo, ...]
    """The segments and files whose rows are read."""
    tenants: tuple[str, ...]
    """The tenants that get files of their own."""
    ended: tuple[str, ...]
    """Classes of tenants whose time is over: their rows are left out."""
    replaces: tuple[str, ...]
    """Keys that no longer count afterwards: the inputs, and what former generations replaced."""
    why: str

    @property
    def bytes(self) -> int:
        """Bytes that are read."""
        return sum(info.size for info in self.inputs)


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one day of one table."""

    of: Day
    decisions: tuple[Decision, ...]
    compacting: Compacting | None = None
    retiring: Compaction | None = None
    """The commit that is to be written."""

    @property
    def counted(self) -> int:
        """Bytes whose rows count afterwards."""
        gone = {Verdict.DROP, Verdict.RETIRE}
        return sum(one.info.size for one in self.decisions if one.counts and one.verdict not in gone)

    def dropped(self, why: str) -> Planned:
        """The same day when nothing of it is kept but what is pinned, and a commit that hides that."""
        pinned = {one.info.key for one in self.decisions if one.pinned}
        newest = self.of.newest
        hidden = newest.compaction.replaces if newest and newest.compaction and not self.retiring else ()
        hiding = newest.info.key if newest and not pinned.isdisjoint(hidden) else ""
        return replace(self, decisions=tuple(_dropped(one, why, hiding) for one in self.decisions))


def _dropped(one: Decision, why: str, hiding: str) -> Decision:
    if one.pinned or one.verdict is Verdict.DROP:
        return one
    if one.info.key == hiding:
        return replace(one, why="hides a segment that stays")
    return replace(one, verdict=Verdict.DROP, why=why)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that retention does at one moment."""

    now_ms: int
    decisions: tuple[Decision, ...]
    """One for every object of the listing."""
    compactions: tuple[Compacting, ...]
    retirings: tuple[Compaction, ...]
    """Commits that are to be written: they hide what is retired."""
    over: tuple[str, ...]
    """What stays above its size cap although nothing more may be dropped, as words."""

    @property
    def drops(self) -> list[Decision]:
        """What is deleted, in an order that may be interrupted anywhere."""
        return sorted(self.of(Verdict.DROP), key=lambda one: (one.order, one.info.key))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.compactions and not self.retirings and next(self.of(Verdict.DROP), None) is None

    def of(self, verdict: Verdict) -> Iterator[Decision]:
        """The decisions with that verdict."""
        return (one for one in self.decisions if one.verdict is verdict)
