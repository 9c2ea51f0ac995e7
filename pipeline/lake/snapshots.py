"""Snapshots of the ledger: all job records of one moment, in files that a commit names.

A snapshot is there with its commit, which is written last and only once; a reader takes the newest one that is whole.
The commit's key has the time of the snapshot's turn, so that any number of exporters make one a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

import orjson

from pipeline.lake.layout import Layout


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot."""

    key: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The commit of a snapshot. There is always a file, so that a snapshot of no jobs can be told from none."""

    slot: str
    """As in its key."""
    taken_ms: int
    """When the reading began, by the clock of Redis: records may be as they were later, but not before."""
    rows: int
    files: tuple[SnapshotFile, ...]

    def to_json(self) -> bytes:
        """The document under the key of the commit."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, document: bytes) -> Self:
        """What a commit says. ValueError, TypeError or KeyError for what is none."""
        told: dict[str, Any] = orjson.loads(document)
        told["files"] = tuple(SnapshotFile(**file) for file in told["files"])
        return cls(**told)

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Whether it can be read, by the bytes of the objects that are there, by key."""
        return bool(self.files) and all(sizes.get(file.key) == file.bytes for file in self.files)


def slot_of(now_ms: int, interval_ms: int) -> str:
    """The turn that a time is in: they begin at whole intervals since 1970, in UTC."""
    began = datetime.fromtimestamp((now_ms - now_ms % interval_ms) / 1000, UTC)
    return f"{began:%Y%m%dT%H%M%S}.{began.microsecond // 1000:03d}Z"


def commit_key(layout: Layout, slot: str) -> str:
    """Where the commit of a turn is."""
    return f"{layout.root}ledger/{slot}.json"


def file_key(layout: Layout, slot: str, attempt: str, number: int) -> str:
    """Where a file is; `attempt` tells writers of the same turn apart."""
    return f"{layout.root}ledger/{slot}/{attempt}/{number:05d}.parquet"
