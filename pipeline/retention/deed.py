"""Does what was planned. Every step may be interrupted, repeated, and done by two at once.

Deletions come first, page by page; a commit is written only where nobody has written one of the same generation. What
an interrupted run leaves behind counts for no reader, and later runs collect it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Final

import orjson

from kernel.objects.bulk import PAGE
from kernel.telemetry.logs import get_logger
from pipeline.lake.compaction import CompactFile, Compaction
from pipeline.lake.store import LakeStore
from pipeline.retention.policy import ORPHAN_MS
from pipeline.retention.verdicts import Compacting, RetentionDecision, RetentionPlan

_LONGEST_MS: Final = ORPHAN_MS // 2
"""Files of a compaction that takes longer could be collected before its commit names them."""
_JSON: Final = "application/json"

_log = get_logger("retention")


@dataclass(slots=True)
class DeedOutcome:
    """What a run has done."""

    began_ms: int
    deleted: int = 0
    deleted_bytes: int = 0
    remaining: dict[str, str] = field(default_factory=dict)
    """Keys that the store would not delete, and why."""
    retired: list[str] = field(default_factory=list)
    """Keys of the commits that hide rows whose time is over."""
    compacted: list[str] = field(default_factory=list)
    """Keys of the commits of compactions."""
    rows: int = 0
    """Rows in the files of these compactions."""
    outrun: list[str] = field(default_factory=list)
    """Keys of commits that another run has written first."""
    failed: list[str] = field(default_factory=list)
    """Compactions that failed, and why; they are tried again by the next run."""
    ended_ms: int = 0

    @property
    def well(self) -> bool:
        """Whether everything that was planned is done, by this run or another."""
        return not self.remaining and not self.failed

    def to_json(self) -> bytes:
        """The record of the run."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True)
class Deed:
    """The steps of one run, in one lake."""

    store: LakeStore
    now_ms: Callable[[], int]

    async def drop(self, plan: RetentionPlan, outcome: DeedOutcome) -> None:
        """Deletes what is to be dropped. ObjectStoreError where the store does not answer."""
        for page in _pages(plan.drops):
            remaining = await self.store.objects.delete_many(self.store.bucket, (one.info.key for one in page))
            gone = [one for one in page if one.info.key not in remaining]
            outcome.deleted += len(gone)
            outcome.deleted_bytes += sum(one.info.size for one in gone)
            outcome.remaining |= remaining
            _log.info("objects_deleted", count=len(gone), failed=len(remaining))

    async def retire(self, plan: RetentionPlan, outcome: DeedOutcome) -> None:
        """Writes the commits that hide what is retired."""
        for commit in plan.retirings:
            key = self._key(commit.table, commit.day, commit.generation)
            done = await self._commit(key, commit)
            (outcome.retired if done else outcome.outrun).append(key)
            _log.info("day_retired" if done else "day_retired_by_another", key=key)

    async def commit(
        self, compacting: Compacting, files: tuple[CompactFile, ...], began_ms: int, outcome: DeedOutcome
    ) -> None:
        """Makes the files of a compaction count; those of one that was outrun are deleted."""
        key = self._key(compacting.table, compacting.day.isoformat(), compacting.generation)
        now_ms = self.now_ms()
        if now_ms - began_ms > _LONGEST_MS:
            outcome.failed.append(f"{key}: took longer than {_LONGEST_MS // 3_600_000} h")
            return
        if missing := await self._missing(files):
            outcome.failed.append(f"{key}: {missing} is not as it was written")
            return
        rows = sum(file.rows for file in files)
        done = Compaction(
            table=compacting.table,
            day=compacting.day.isoformat(),
            generation=compacting.generation,
            created_ms=now_ms,
            rows=rows,
            tenants=compacting.tenants,
            files=files,
            replaces=compacting.replaces,
        )
        if await self._commit(key, done):
            outcome.compacted.append(key)
            outcome.rows += rows
            _log.info("day_compacted", key=key, count=rows)
            return
        outcome.outrun.append(key)
        _log.info("day_compacted_by_another", key=key)
        outcome.remaining |= await self.store.objects.delete_many(self.store.bucket, (file.key for file in files))

    async def record(self, outcome: DeedOutcome) -> str:
        """Writes down what the run did; the key of that."""
        outcome.ended_ms = self.now_ms()
        key = f"{self.store.layout.root}retention/{outcome.began_ms:015d}.json"
        body = outcome.to_json()
        while not await self.store.objects.put(self.store.bucket, key, body, content_type=_JSON, if_absent=True):
            key = f"{key.removesuffix('.json')}-again.json"
        _log.info("retention_done", key=key, count=outcome.deleted, bytes=outcome.deleted_bytes)
        return key

    async def _missing(self, files: Iterable[CompactFile]) -> str:
        for file in files:
            info = await self.store.objects.head(self.store.bucket, file.key)
            if info is None or info.size != file.bytes:
                return file.key
        return ""

    async def _commit(self, key: str, commit: Compaction) -> bool:
        body, objects, bucket = commit.to_json(), self.store.objects, self.store.bucket
        # An answer that was lost may leave a commit of our own, and not every store has MD5 for an ETag to know it by.
        return (
            await objects.put(bucket, key, body, content_type=_JSON, if_absent=True)
            or await objects.get(bucket, key) == body
        )

    def _key(self, table: str, day: str, generation: int) -> str:
        return self.store.layout.compaction(table, date.fromisoformat(day), generation)


def _pages(decisions: list[RetentionDecision]) -> Iterator[list[RetentionDecision]]:
    for first in range(0, len(decisions), PAGE):
        yield decisions[first : first + PAGE]
