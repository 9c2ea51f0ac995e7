"""What a listing of the lake holds, put in order: days of tables with their segments and compactions, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from kernel.objects import ObjectInfo
from pipeline.lake.compaction import Compaction
from pipeline.lake.layout import LakeSegment, Layout
from pipeline.tables import BY_NAME

_COMPACT: Final = re.compile(
    r"compact/(?P<table>[a-z]+)/day=(?P<day>\d{4}-\d\d-\d\d)/(?P<generation>\d{6})"
    r"(?:\.json|/(?P<attempt>[^/]+)/(?P<tenant>[^/]+)/[^/]+\.parquet)"
)
_MARKER: Final = re.compile(r"epochs/(?P<table>[a-z]+)/part=(?P<part>\d{3,4})/(?P<epoch>\d{6})\.json")
_LEDGER: Final = re.compile(r"ledger/(?P<slot>[^/]+?)(?P<commit>\.json|/[^/]+/[^/]+\.parquet)")
_RECORD: Final = re.compile(r"retention/[^/]+\.json")


@dataclass(frozen=True, slots=True)
class Raw:
    """A segment that is there, or the rows of it that are in quarantine."""

    info: ObjectInfo
    segment: LakeSegment


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a compaction; `compaction` is None where its document is none."""

    info: ObjectInfo
    generation: int
    compaction: Compaction | None

    @property
    def at_ms(self) -> int:
        """Since when it counts: the later one of its own time and the store's."""
        return max(self.info.modified_ms, self.compaction.created_ms if self.compaction else 0)


@dataclass(frozen=True, slots=True)
class Compacted:
    """A file of a compaction, whether or not a commit names it."""

    info: ObjectInfo
    generation: int
    tenant: str


@dataclass(slots=True)
class Day:
    """Everything of one day of one table; `commits` by generation."""

    table: str
    day: date
    raw: list[Raw] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    files: list[Compacted] = field(default_factory=list)

    @property
    def newest(self) -> Commit | None:
        """The commit that counts."""
        return self.commits[-1] if self.commits else None


@dataclass(frozen=True, slots=True)
class MarkerFile:
    """The document that says why an epoch of a partition began."""

    info: ObjectInfo
    table: str
    partition: int
    epoch: int


@dataclass(slots=True)
class LakeSnapshot:
    """What is there of one snapshot of the ledger."""

    slot: str
    commit: ObjectInfo | None = None
    document: bytes | None = None
    files: list[ObjectInfo] = field(default_factory=list)


@dataclass(slots=True)
class Contents:
    """A listing, put in order. `unknown`: what is under no key of ours."""

    days: dict[tuple[str, date], Day] = field(default_factory=dict)
    quarantine: list[Raw] = field(default_factory=list)
    markers: list[MarkerFile] = field(default_factory=list)
    snapshots: dict[str, LakeSnapshot] = field(default_factory=dict)
    records: list[ObjectInfo] = field(default_factory=list)
    unknown: list[ObjectInfo] = field(default_factory=list)

    def day(self, table: str, day: date) -> Day:
        """That day of that table, empty at first."""
        return self.days.setdefault((table, day), Day(table, day))


def is_commit(layout: Layout, key: str) -> bool:
    """Whether the object is a commit, whose document `sort` wants to see."""
    rest = key.removeprefix(layout.root)
    return key.endswith(".json") and (_COMPACT.fullmatch(rest) or _LEDGER.fullmatch(rest)) is not None


def sort(layout: Layout, listing: Iterable[ObjectInfo], documents: Mapping[str, bytes]) -> Contents:
    """The contents of the lake; `documents` holds what is under the keys for which `is_commit` says yes."""
    contents = Contents()
    for info in listing:
        document = documents.get(info.key)
        if not _segment(layout, info, contents) and not _other(layout, info, document, contents):
            contents.unknown.append(info)
    for day in contents.days.values():
        day.commits.sort(key=lambda commit: commit.generation)
    return contents


def _segment(layout: Layout, info: ObjectInfo, contents: Contents) -> bool:
    segment = layout.parse(info.key)
    if segment is None:
        return False
    if info.key == layout.segment(segment):
        contents.day(segment.table, segment.day).raw.append(Raw(info, segment))
    else:
        contents.quarantine.append(Raw(info, segment))
    return True


def _other(layout: Layout, info: ObjectInfo, document: bytes | None, contents: Contents) -> bool:
    if not info.key.startswith(layout.root):
        return False
    rest = info.key[len(layout.root) :]
    if found := _COMPACT.fullmatch(rest):
        return _compact(found, info, document, contents)
    if (found := _MARKER.fullmatch(rest)) and found["table"] in BY_NAME:
        contents.markers.append(MarkerFile(info, found["table"], int(found["part"]), int(found["epoch"])))
    elif found := _LEDGER.fullmatch(rest):
        snapshot = contents.snapshots.setdefault(found["slot"], LakeSnapshot(found["slot"]))
        if found["commit"] == ".json":
            snapshot.commit, snapshot.document = info, document
        else:
            snapshot.files.append(info)
    elif _RECORD.fullmatch(rest):
        contents.records.append(info)
    else:
        return False
    return True


def _compact(found: re.Match[str], info: ObjectInfo, document: bytes | None, contents: Contents) -> bool:
    try:
        day = date.fromisoformat(found["day"])
    except ValueError:
        return False
    table, generation = found["table"], int(found["generation"])
    if table not in BY_NAME:
        return False
    if found["tenant"] is None:
        commit = Commit(info, generation, _compaction(document, table, day, generation))
        contents.day(table, day).commits.append(commit)
    else:
        contents.day(table, day).files.append(Compacted(info, generation, found["tenant"]))
    return True


def _compaction(document: bytes | None, table: str, day: date, generation: int) -> Compaction | None:
    """What the commit says; None where it says nothing that can be believed."""
    try:
        said = Compaction.from_json(document or b"")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    is_own = (said.table, said.day, said.generation) == (table, day.isoformat(), generation)
    return said if is_own else None
