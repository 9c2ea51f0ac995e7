"""What retention has decided: for every object, and for days of which a commit is to be written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from kernel.objects import ObjectInfo
from pipeline.lake.compaction import Compaction
from pipeline.lake.contents import Compacted


class RetentionVerdict(StrEnum):
    """What becomes of an object."""

    KEEP = "keep"
    DROP = "drop"
    COMPACT = "compact"
    """Its rows go into a new file; it stays until they are there, and `raw_keep` longer."""
    RETIRE = "retire"
    """Its rows no longer count from now on: a commit says so, and `raw_keep` later it is dropped."""


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What becomes of one object, and why."""

    info: ObjectInfo
    verdict: RetentionVerdict
    why: str
    area: str
    """`raw/tasks`, `compact/logs`, `quarantine/dlq`, `epochs/tasks`, `ledger`, `retention` or `unknown`."""
    day: date | None = None
    counts: bool = False
    """Whether readers read its rows: what no longer counts, or not yet, is not held against a size cap."""
    pinned: bool = False
    """Whether it stays even when a size cap takes its day."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """A day that is to be compacted."""

    table: str
    day: date
    generation: int
    segments: tuple[ObjectInfo, ...]
    """The segments whose rows are read."""
    files: tuple[Compacted, ...]
    """The files of former compactions whose rows are read."""
    tenants: tuple[str, ...]
    """The tenants that get files of their own."""
    ended: tuple[str, ...]
    """Classes of tenants whose time is over: their rows are left out."""
    replaces: tuple[str, ...]
    """Keys that no longer count afterwards: the inputs, and what former generations replaced."""
    why: str

    @property
    def inputs(self) -> tuple[ObjectInfo, ...]:
        """All objects that are read."""
        return (*self.segments, *(file.info for file in self.files))

    @property
    def bytes(self) -> int:
        """Bytes that are read."""
        return sum(info.size for info in self.inputs)


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one day of one table."""

    decisions: tuple[RetentionDecision, ...]
    compacting: Compacting | None = None
    retiring: Compaction | None = None
    """The commit that is to be written."""

    @property
    def counted(self) -> int:
        """Bytes whose rows count afterwards."""
        gone = {RetentionVerdict.DROP, RetentionVerdict.RETIRE}
        return sum(one.info.size for one in self.decisions if one.counts and one.verdict not in gone)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """All that retention does at one moment."""

    now_ms: int
    decisions: tuple[RetentionDecision, ...]
    """One for every object of the listing."""
    compactions: tuple[Compacting, ...]
    retirings: tuple[Compaction, ...]
    """Commits that are to be written: they hide what is retired."""
    over: tuple[str, ...]
    """What stays above its size cap although nothing more may be dropped, as words."""

    @property
    def drops(self) -> list[RetentionDecision]:
        """What is deleted, by key: that of a commit comes before those of its files, which count for nobody then."""
        return sorted(self.of(RetentionVerdict.DROP), key=lambda one: one.info.key)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.compactions and not self.retirings and next(self.of(RetentionVerdict.DROP), None) is None

    def of(self, verdict: RetentionVerdict) -> Iterator[RetentionDecision]:
        """The decisions with that verdict."""
        return (one for one in self.decisions if one.verdict is verdict)
