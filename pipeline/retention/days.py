"""What becomes of one day of one table.

A segment is written; once its day is closed it is compacted into files of classes of tenants, and deleted `raw_keep`
after that. When the time of a class is over a new commit is without its files, when that of the last class is, without
any; what no commit names any more is deleted `raw_keep` later. That is the only way for rows to go, so nothing is
deleted under the hands of a reader. The last commit goes when it is all that its day has left. A segment that comes
late, and a tenant that gets a retention of its own, lead to one more generation of the day.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cached_property

from kernel.objects import ObjectInfo
from pipeline.lake.compaction import OTHERS, CompactFile, Compaction
from pipeline.lake.contents import Commit, Compacted, Day, Raw
from pipeline.lake.layout import LakeSegment
from pipeline.retention.policy import CLOSED_MS, ORPHAN_MS, Policy, RetentionRule, ended_ms, over
from pipeline.retention.verdicts import Compacting, Planned, RetentionDecision, RetentionVerdict
from pipeline.retention.words import span

_UNREADABLE = "a commit of its day cannot be read"
_READERS = "readers may still be at it"


@dataclass(frozen=True)
class DayPlanner:
    """One day of one table at one moment; `positions` are the segments that exporters go on from."""

    day: Day
    rule: RetentionRule
    policy: Policy
    positions: Container[LakeSegment]
    now_ms: int

    def plan(self) -> Planned:
        """What becomes of it by its age alone."""
        if self._over_for_all:
            return self._hidden_whole(f"ended more than {span(self.rule.longest_ms)} ago")
        if self._unreadable:
            return self._planned()
        if compacting := self._compacting():
            return self._planned(compacting=compacting)
        ended = [file for file in self._named if self._over(file.tenant)]
        return self._retired(ended, "the time of its tenants is over") if ended else self._planned()

    def retired(self, why: str) -> Planned:
        """What becomes of it when none of its rows is to count any more, though its time is not over."""
        return self._planned() if self._unreadable else self._hidden_whole(why)

    def _hidden_whole(self, why: str) -> Planned:
        raw = [raw.info.key for raw in self.day.raw]
        if not self._unreadable and not self._named and all(key in self._hidden for key in raw):
            return self._planned()
        return self._retired(self._named, why, [*raw, *(file.info.key for file in self.day.files)])

    def _planned(
        self, *, compacting: Compacting | None = None, retiring: Compaction | None = None, why: str = ""
    ) -> Planned:
        verdicts: dict[str, tuple[RetentionVerdict, str]] = {}
        if compacting:
            verdicts = {info.key: (RetentionVerdict.COMPACT, compacting.why) for info in compacting.inputs}
        if retiring:
            verdicts = {key: (RetentionVerdict.RETIRE, why) for key in retiring.replaces if key not in self._hidden}
        decisions = [
            *(self._raw(raw, verdicts.get(raw.info.key)) for raw in self.day.raw),
            *(self._file(file, verdicts.get(file.info.key)) for file in self.day.files),
            *(self._commit(commit) for commit in self.day.commits),
        ]
        return Planned(tuple(decisions), compacting, retiring)

    def _retired(self, files: Iterable[CompactFile], why: str, others: Iterable[str] = ()) -> Planned:
        newest = self.day.newest
        known = newest.compaction if newest else None
        leaving = frozenset(file.key for file in files)
        staying = tuple(file for file in self._named if file.key not in leaving)
        commit = Compaction(
            table=self.day.table,
            day=self.day.day.isoformat(),
            generation=newest.generation + 1 if newest else 1,
            created_ms=self.now_ms,
            rows=sum(file.rows for file in staying),
            tenants=known.tenants if known else (),
            files=staying,
            replaces=tuple(sorted(leaving.union(others, self._hidden))),
        )
        return self._planned(retiring=commit, why=why)

    @cached_property
    def _unreadable(self) -> bool:
        """Whether nobody knows what counts; each commit says all that those before it have said."""
        return self.day.newest is not None and self.day.newest.compaction is None

    @cached_property
    def _hidden(self) -> dict[str, int]:
        """Since when keys no longer count, in ms."""
        hidden: dict[str, int] = {}
        for commit in self.day.commits:
            for key in commit.compaction.replaces if commit.compaction else ():
                hidden[key] = min(commit.at_ms, hidden.get(key, commit.at_ms))
        return hidden

    @cached_property
    def _named(self) -> tuple[CompactFile, ...]:
        """The files that count."""
        newest = self.day.newest
        return newest.compaction.files if newest and newest.compaction else ()

    @cached_property
    def _current(self) -> dict[str, Compacted]:
        """Those of them that are there, by key."""
        named = {file.key for file in self._named}
        return {file.info.key: file for file in self.day.files if file.info.key in named}

    @cached_property
    def _damaged(self) -> bool:
        """Whether a file that counts is not there: its rows may still be in the segments that it replaced."""
        return any(file.key not in self._current for file in self._named)

    @property
    def _over_for_all(self) -> bool:
        return over(self.day.day, self.rule.longest_ms, self.now_ms)

    def _over(self, tenant: str) -> bool:
        return over(self.day.day, self.rule.of(tenant), self.now_ms)

    def _finished(self, since_ms: int) -> bool:
        """Whether whoever read what stopped to count then has finished."""
        return since_ms + self.policy.raw_keep_ms <= self.now_ms

    def _compacting(self) -> Compacting | None:
        if ended_ms(self.day.day) + CLOSED_MS > self.now_ms:
            return None
        newest = self.day.newest
        known = newest.compaction if newest else None
        raw = [raw.info for raw in self.day.raw if self._damaged or raw.info.key not in self._hidden]
        fresh = set(self.rule.tenants) - set(known.tenants if known else ())
        mixed = any(file.tenant == OTHERS for file in self._current.values())
        if not raw and not (fresh and mixed):
            return None
        replaced = {*(info.key for info in raw), *self._hidden, *(file.key for file in self._named)}
        return Compacting(
            table=self.day.table,
            day=self.day.day,
            generation=newest.generation + 1 if newest else 1,
            segments=tuple(sorted(raw, key=lambda info: info.key)),
            files=tuple(sorted(self._current.values(), key=lambda file: file.info.key)),
            tenants=tuple(sorted(self.rule.tenants)),
            ended=tuple(tenant for tenant in self.rule.classes if self._over(tenant)),
            replaces=tuple(sorted(replaced)),
            why=self._why(fresh) if known else "the day is closed",
        )

    def _why(self, fresh: Iterable[str]) -> str:
        if self._damaged:
            return "a file of the last compaction is missing"
        if any(raw.info.key not in self._hidden for raw in self.day.raw):
            return "segments came late"
        return f"a retention of their own for {', '.join(sorted(fresh))}"

    def _raw(self, raw: Raw, told: tuple[RetentionVerdict, str] | None) -> RetentionDecision:
        since = self._hidden.get(raw.info.key)
        position = raw.segment in self.positions
        if told is None:
            told = self._raw_verdict(since, position=position)
        return self._decision(raw.info, told, "raw", counts=since is None)

    def _raw_verdict(self, since: int | None, *, position: bool) -> tuple[RetentionVerdict, str]:
        if position:
            return RetentionVerdict.KEEP, "the exporter goes on from here"
        if self._unreadable:
            return RetentionVerdict.KEEP, _UNREADABLE
        if since is None:
            return RetentionVerdict.KEEP, "its day is not closed yet"
        if self._damaged:
            return RetentionVerdict.KEEP, "a file of its compaction is missing"
        if self._finished(since):
            return RetentionVerdict.DROP, "no longer counts"
        return RetentionVerdict.KEEP, f"no longer counts; {_READERS}"

    def _file(self, file: Compacted, told: tuple[RetentionVerdict, str] | None) -> RetentionDecision:
        counts = file.info.key in self._current
        told = told or self._file_verdict(file, counts=counts)
        return self._decision(file.info, told, "compact", counts=counts)

    def _file_verdict(self, file: Compacted, *, counts: bool) -> tuple[RetentionVerdict, str]:
        since = self._hidden.get(file.info.key)
        if self._unreadable:
            return RetentionVerdict.KEEP, _UNREADABLE
        if counts:
            return RetentionVerdict.KEEP, f"is kept {span(self.rule.of(file.tenant))}"
        if since is not None:
            done = self._finished(since)
            return (
                (RetentionVerdict.DROP, "no longer counts")
                if done
                else (RetentionVerdict.KEEP, f"no longer counts; {_READERS}")
            )
        if file.info.modified_ms + ORPHAN_MS > self.now_ms:
            return RetentionVerdict.KEEP, "may be of a compaction that goes on"
        return RetentionVerdict.DROP, "left behind by a compaction that did not end"

    def _commit(self, commit: Commit) -> RetentionDecision:
        later = [other.at_ms for other in self.day.commits if other.generation > commit.generation]
        if self._unreadable:
            told = RetentionVerdict.KEEP, _UNREADABLE
        elif not later and self._over_for_all and not (self.day.raw or self.day.files or self._named):
            told = RetentionVerdict.DROP, "nothing of its day is left"
        elif not later:
            told = RetentionVerdict.KEEP, "says which files count"
        elif self._finished(min(later)):
            told = RetentionVerdict.DROP, "another generation counts"
        else:
            told = RetentionVerdict.KEEP, f"another generation counts; {_READERS}"
        return self._decision(commit.info, told, "compact")

    def _decision(
        self, info: ObjectInfo, told: tuple[RetentionVerdict, str], kind: str, *, counts: bool = False
    ) -> RetentionDecision:
        verdict, why = told
        return RetentionDecision(info, verdict, why, f"{kind}/{self.day.table}", self.day.day, counts)
