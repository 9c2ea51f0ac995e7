"""A lake in memory, with rows that are only tenants and ids: what retention decides is done to it and looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from kernel.objects import ObjectInfo
from pipeline.lake.compaction import OTHERS, CompactFile, Compaction
from pipeline.lake.contents import is_commit, sort
from pipeline.lake.layout import LakeSegment, Layout, day_of
from pipeline.lake.store import Stored
from pipeline.retention.planner import plan
from pipeline.retention.policy import Policy, RetentionRule
from pipeline.retention.verdicts import Compacting, RetentionPlan
from pipeline.spark.reading import plan as reading
from pipeline.tables import TABLES, Table

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FIRST = date(2026, 3, 1)
START_MS = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1000
LAYOUT = Layout("lake/")
Row = tuple[str, str]
"""Tenant and id."""


def policy(
    *,
    days: float = 4,
    tenants: dict[str, float] | None = None,
    cap: int = 0,
    keep_hours: int = 24,
    **others: RetentionRule,
) -> Policy:
    """The same for all tables, in days."""
    own = {name: round(kept * DAY_MS) for name, kept in (tenants or {}).items()}
    rule = RetentionRule(round(days * DAY_MS), cap, own)
    long = RetentionRule(90 * DAY_MS)
    return Policy(
        tables={table.name: rule for table in TABLES},
        ledger=others.get("ledger", long),
        quarantine=others.get("quarantine", long),
        raw_keep_ms=keep_hours * HOUR_MS,
    )


@dataclass(frozen=True)
class Thing:
    """An object."""

    info: ObjectInfo
    document: bytes = b""
    rows: frozenset[Row] = frozenset()


@dataclass
class World:
    """A lake at a time."""

    now_ms: int = START_MS
    things: dict[str, Thing] = field(default_factory=dict)
    ends: dict[tuple[str, int, int], int] = field(default_factory=dict)
    attempts: int = 0

    def put(self, key: str, *, size: int = 100, document: bytes = b"", rows: Iterable[Row] = ()) -> bool:
        """Unless there is one."""
        if key in self.things:
            return False
        self.things[key] = Thing(ObjectInfo(key, size, "", self.now_ms), document, frozenset(rows))
        return True

    def segment(self, table: Table, at_ms: int, rows: Iterable[Row], *, partition: int = 0, epoch: int = 1) -> str:
        """A segment behind the last one of its epoch, with entries of the day of `at_ms`."""
        place = (table.name, partition, epoch)
        start = self.ends.get(place, 0)
        self.ends[place] = max(at_ms, start + 1)
        key = LAYOUT.segment(LakeSegment(table.name, partition, epoch, (start, 0), day_of(self.ends[place])))
        rows = frozenset(rows)
        self.put(key, size=100 + 10 * len(rows), rows=rows)
        return key

    def plan(self, rules: Policy) -> RetentionPlan:
        """What retention would do now."""
        documents = {key: thing.document for key, thing in self.things.items() if is_commit(LAYOUT, key)}
        contents = sort(LAYOUT, [thing.info for thing in self.things.values()], documents)
        return plan(contents, rules, self.now_ms)

    def do(self, plan: RetentionPlan, steps: int = 1 << 30) -> int:
        """Does it, or only the first so many steps, of which a compaction has three; how many there were."""
        done = 0
        for decision in plan.drops[:steps]:
            del self.things[decision.info.key]
            done += 1
        for commit in plan.retirings[: max(0, steps - done)]:
            self.put(
                LAYOUT.compaction(commit.table, date.fromisoformat(commit.day), commit.generation),
                document=commit.to_json(),
            )
            done += 1
        for compacting in plan.compactions:
            done += self.compact(compacting, max(0, min(3, steps - done)))
        return done

    def compact(self, compacting: Compacting, steps: int = 3) -> int:
        """One file of each class: half of them in the first step, all in the second; the commit is the third."""
        self.attempts += 1
        rows = {row for info in compacting.inputs for row in self.things[info.key].rows}
        root = LAYOUT.compaction(compacting.table, compacting.day, compacting.generation)
        classes = [tenant for tenant in (OTHERS, *compacting.tenants) if tenant not in compacting.ended]
        files = []
        for number, tenant in enumerate(classes):
            own = {row for row in rows if tenant == (row[0] if row[0] in compacting.tenants else OTHERS)}
            if own and steps > (number > len(classes) // 2):
                key = f"{root.removesuffix('.json')}/{self.attempts}/{tenant}/00000.parquet"
                self.put(key, size=20 + 10 * len(own), rows=own)
                files.append(CompactFile(key, tenant, len(own), self.things[key].info.size, ""))
        if steps == 3:
            commit = Compaction(
                compacting.table, compacting.day.isoformat(), compacting.generation, self.now_ms,
                sum(file.rows for file in files), compacting.tenants, tuple(files), compacting.replaces,
            )  # fmt: skip
            self.put(root, document=commit.to_json())
        return steps

    def files(self, table: Table, first: date = date.min) -> list[str]:
        """What a reader of a table's days would read now."""
        stored, commits = [], []
        for key, thing in self.things.items():
            segment = LAYOUT.parse(key)
            if segment and key == LAYOUT.segment(segment) and segment.table == table.name and segment.day >= first:
                stored.append(Stored(segment, key, thing.info.size, thing.info.modified_ms))
            elif key.startswith(f"{LAYOUT.root}compact/{table.name}/") and key.endswith(".json"):
                commit = Compaction.from_json(thing.document)
                commits += [commit] if date.fromisoformat(commit.day) >= first else []
        return [file.key for file in reading(stored, commits).files]

    def rows(self, table: Table) -> set[Row]:
        """What a reader sees; KeyError where it would not find a file."""
        return {row for key in self.files(table) for row in self.things[key].rows}

    def sleep(self, ms: int) -> None:
        """Later."""
        self.now_ms += ms


def midnight(day: date) -> int:
    """The first moment of the day behind `day`, computed without the code that is tested."""
    return round((datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)).timestamp() * 1000)
