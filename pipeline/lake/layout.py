"""The keys of the lake. All that is known about its contents is in them, so a listing is enough to plan with.

    v1/raw/{table}/part=003/epoch=000001/day=2026-11-27/{start}.parquet   segments, as the exporter wrote them
    v1/quarantine/{table}/…                                               rows of a segment that could not be decoded
    v1/epochs/{table}/part=003/000002.json                                why an epoch began; the first has none
    v1/compact/{table}/day=2026-11-27/000001.json                         a compaction of a closed day: its commit
    v1/compact/{table}/day=2026-11-27/000001/{attempt}/{class}/00000.parquet    its files
    v1/ledger/{time}.json                                                 a snapshot of the ledger: its commit
    v1/ledger/{time}/{attempt}/00000.parquet                              its files
    v1/retention/{time}.json                                              what a run of retention did

`start` is the position after which a segment begins, `{ms}-{seq}` in fixed width: the next segment of its epoch begins
where it ends. Days are those of the entries, in UTC. Nothing is ever overwritten: every key is made with a condition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, Self

from kernel.log.offsets import parse_id
from pipeline.tables import BY_NAME, Table

_VERSION: Final = "v1"
_SEGMENT: Final = re.compile(
    r"(?P<kind>raw|quarantine)/(?P<table>[a-z]+)/part=(?P<part>\d{3,4})/epoch=(?P<epoch>\d{6})"
    r"/day=(?P<day>\d{4}-\d\d-\d\d)/(?P<ms>\d{15,20})-(?P<seq>\d{20})\.parquet"
)
_LAST_MS: Final = 253_402_300_799_000


@dataclass(frozen=True, slots=True, order=True)
class LakeSegment:
    """One segment of a partition, by its key: it holds entries of `day` behind `start`."""

    table: str
    partition: int
    epoch: int
    start: tuple[int, int]
    """`(ms, seq)` of the entry before its first; exclusive."""
    day: date

    @classmethod
    def behind(cls, table: Table, partition: int, epoch: int, start: str, first: str) -> Self:
        """The segment that begins behind the id `start`, whose first entry has the id `first`."""
        return cls(table.name, partition, epoch, parse_id(start), day_of(parse_id(first)[0]))

    @property
    def position(self) -> str:
        """`start` as an id."""
        return f"{self.start[0]}-{self.start[1]}"


def day_of(ms: int) -> date:
    """The day of a time, in UTC; of times that have none, the last day of the year 9999."""
    return datetime.fromtimestamp(min(ms, _LAST_MS) / 1000, UTC).date()


class Layout:
    """The keys below one prefix."""

    def __init__(self, prefix: str) -> None:
        """`prefix` ends in a slash (`lake.prefix`)."""
        self.root = f"{prefix}{_VERSION}/"

    def partition(self, table: str, partition: int, kind: str = "raw") -> str:
        """What the keys of a partition begin with; `kind` is `raw`, `quarantine` or `epochs`."""
        return f"{self.root}{kind}/{table}/part={partition:03d}/"

    def epoch(self, table: str, partition: int, epoch: int) -> str:
        """What the keys of the segments of an epoch begin with."""
        return f"{self.partition(table, partition)}epoch={epoch:06d}/"

    def marker(self, table: str, partition: int, epoch: int) -> str:
        """The key of the document that says why an epoch began."""
        return f"{self.partition(table, partition, 'epochs')}{epoch:06d}.json"

    def segment(self, segment: LakeSegment, kind: str = "raw") -> str:
        """The key of a segment, or of the rows of it that are in quarantine."""
        ms, seq = segment.start
        folder = f"{self.partition(segment.table, segment.partition, kind)}epoch={segment.epoch:06d}/"
        return f"{folder}day={segment.day.isoformat()}/{ms:015d}-{seq:020d}.parquet"

    def parse(self, key: str) -> LakeSegment | None:
        """The segment of a key of `raw` or `quarantine`; None for any other key."""
        found = _SEGMENT.fullmatch(key.removeprefix(self.root)) if key.startswith(self.root) else None
        if found is None or found["table"] not in BY_NAME:
            return None
        try:
            day = date.fromisoformat(found["day"])
        except ValueError:
            return None
        start = (int(found["ms"]), int(found["seq"]))
        return LakeSegment(found["table"], int(found["part"]), int(found["epoch"]), start, day)

    def compaction(self, table: str, day: date, generation: int) -> str:
        """The key of the commit of a compaction; what its files begin with ends in a slash instead of `.json`."""
        return f"{self.root}compact/{table}/day={day.isoformat()}/{generation:06d}.json"
