"""What becomes of the snapshots of the ledger. The newest valid one stays, whatever its age and size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Final

from pipeline.lake.contents import LakeSnapshot
from pipeline.lake.layout import day_of
from pipeline.lake.snapshots import LedgerSnapshot
from pipeline.retention.caps import too_much
from pipeline.retention.policy import ORPHAN_MS, Policy
from pipeline.retention.verdicts import RetentionDecision, RetentionVerdict
from pipeline.retention.words import span

_AREA: Final = "ledger"
_Told = tuple[RetentionVerdict, str]


def snapshots(found: Iterable[LakeSnapshot], policy: Policy, now_ms: int) -> tuple[list[RetentionDecision], str]:
    """The decisions on all objects of snapshots, and what is still above the cap, as words."""
    ordered = [_Known(one) for one in sorted(found, key=lambda one: one.slot, reverse=True)]
    newest = next((one for one in ordered if one.valid), None)
    cap, kept = policy.ledger.max_bytes, policy.ledger.retention_ms
    total = newest.size if newest else 0  # alone first: the others have what it leaves
    alone, full = total, False
    decisions: list[RetentionDecision] = []
    for one in ordered:
        told: _Told = (RetentionVerdict.KEEP, f"is kept {span(kept)}")
        if one is newest:
            told = (RetentionVerdict.KEEP, "is the newest valid one")
        elif policy.gone(one.day, kept, now_ms):
            told = (RetentionVerdict.DROP, f"is older than {span(kept)}")
        elif one.valid:
            full = full or bool(cap and total + one.size > cap)
            total += 0 if full else one.size
            told = (RetentionVerdict.DROP, f"the ledger has more than {cap} bytes") if full else told
        decisions += one.decisions(told, now_ms)
    return decisions, too_much("the newest snapshot of the ledger", alone, cap)


@dataclass(frozen=True)
class _Known:
    """A snapshot, and what its commit says."""

    of: LakeSnapshot

    @cached_property
    def commit(self) -> LedgerSnapshot | None:
        """What its commit says; None where there is none that can be read."""
        try:
            return LedgerSnapshot.from_json(self.of.document or b"")
        except (ValueError, TypeError, KeyError):
            return None

    @cached_property
    def named(self) -> frozenset[str]:
        """The keys of the files that its commit names."""
        return frozenset(file.key for file in self.commit.files) if self.commit else frozenset()

    @cached_property
    def valid(self) -> bool:
        """Whether it can be read."""
        return self.commit is not None and self.commit.is_whole({info.key: info.size for info in self.of.files})

    @property
    def size(self) -> int:
        """Bytes of its files and its commit."""
        files = sum(info.size for info in self.of.files if info.key in self.named)
        return files + (self.of.commit.size if self.of.commit else 0)

    @property
    def day(self) -> date:
        """The day, in UTC, on which it was taken; of one without a commit, that of its newest file."""
        if self.commit:
            return day_of(self.commit.taken_ms)
        infos = [*self.of.files, *([self.of.commit] if self.of.commit else ())]
        return day_of(max(info.modified_ms for info in infos))

    def decisions(self, told: _Told, now_ms: int) -> Iterable[RetentionDecision]:
        """The decisions on its objects; those that its commit does not name are of writers that did not end."""
        if self.of.commit:
            yield RetentionDecision(self.of.commit, *told, _AREA, self.day)
        for info in self.of.files:
            if info.key in self.named or told[0] is RetentionVerdict.DROP:
                yield RetentionDecision(info, *told, _AREA, self.day)
            elif info.modified_ms + ORPHAN_MS <= now_ms:
                yield RetentionDecision(
                    info, RetentionVerdict.DROP, "left behind by a snapshot that did not end", _AREA, self.day
                )
            else:
                yield RetentionDecision(
                    info, RetentionVerdict.KEEP, "may be of a snapshot that is being made", _AREA, self.day
                )
