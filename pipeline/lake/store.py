"""The lake as it lies in the object store: what is there, and what is known of it.

Only listings and small documents are read here. Everything raises `ObjectStoreError` where the store does not answer,
`LakeFileError` where a document is not what it should be, and changes nothing unless it says so.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from io import BytesIO
from typing import Final, TypeVar

from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectInfo, ObjectStore
from pipeline.lake.compaction import Compaction
from pipeline.lake.epochs import FIRST, Marker
from pipeline.lake.errors import LakeFileError
from pipeline.lake.layout import LakeSegment, Layout
from pipeline.lake.segments import CONTENT_TYPE, SegmentFacts

T = TypeVar("T")

_AT_ONCE: Final = 16
"""Requests that are on their way at the same time."""
_JSON: Final = "application/json"
_DAY: Final = re.compile(r"/day=(\d{4}-\d\d-\d\d)/$")
_DOCUMENT: Final = re.compile(r"(?P<number>\d{6})\.json")
"""Markers and commits of compactions, by the number of the epoch or the generation."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A segment that is there."""

    segment: LakeSegment
    key: str
    size: int
    """Bytes in the object store."""
    modified_ms: int
    """By the clock of the object store."""


class LakeStore:
    """The lake of the configuration."""

    def __init__(self, objects: ObjectStore, config: Config) -> None:
        self.objects = objects
        self.bucket = config.lake.bucket or objects.bucket
        self.layout = Layout(config.lake.prefix)

    async def segments(
        self, table: str, first: date | None = None, last: date | None = None, kind: str = "raw"
    ) -> list[Stored]:
        """The segments of a table with entries of the days `first` to `last`, in order; `kind`: raw or quarantine."""
        root = f"{self.layout.root}{kind}/{table}/"
        if first is None and last is None:
            return self._stored(await self._list(root))
        prefixes = [root]
        for _ in ("part", "epoch"):
            prefixes = await self._below(prefixes)
        days = [prefix for prefix in await self._below(prefixes) if _within(prefix, first, last)]
        return self._stored(await self._lists(days))

    async def segments_of(self, table: str, partition: int, days: Sequence[date]) -> list[Stored]:
        """The segments of a partition with entries of some days, of all epochs, in order."""
        epochs = await self._below([self.layout.partition(table, partition)])
        return self._stored(await self._lists([f"{epoch}day={day.isoformat()}/" for epoch in epochs for day in days]))

    async def newest(self, table: str, partition: int, epoch: int) -> Stored | None:
        """The last segment of an epoch; None where it has none."""
        folder = self.layout.epoch(table, partition, epoch)
        # The newest day may have become empty: the store may remember its folder for a while.
        for day in reversed(await self.objects.folders(self.bucket, folder)):
            if found := self._stored(await self._list(f"{folder}{day}/")):
                return found[-1]
        return None

    async def epoch(self, table: str, partition: int) -> int:
        """The highest epoch that a partition has a marker of; the first where it has none."""
        markers = await self._list(self.layout.partition(table, partition, "epochs"))
        return max([FIRST, *(_number(info.key) for info in markers)])

    async def marker(self, table: str, partition: int, epoch: int) -> Marker | None:
        """Why an epoch began; None where there is no such document."""
        key = self.layout.marker(table, partition, epoch)
        document = await self.objects.get(self.bucket, key)
        return None if document is None else _read(key, document, Marker.from_json)

    async def has_begun(self, table: str, partition: int, epoch: int) -> bool:
        """Whether an epoch has its marker."""
        return await self.objects.exists(self.bucket, self.layout.marker(table, partition, epoch))

    async def markers(self, table: str) -> list[Marker]:
        """Why the epochs of a table began, by partition and epoch."""
        found = [info for info in await self._list(f"{self.layout.root}epochs/{table}/") if _number(info.key)]
        documents = await self._documents(found)
        return [_read(key, document, Marker.from_json) for key, document in documents]

    async def compactions(self, table: str, first: date | None = None, last: date | None = None) -> list[Compaction]:
        """The compactions of a table's days, all generations, by day and generation."""
        days = await self._below([f"{self.layout.root}compact/{table}/"])
        found = await self._lists([day for day in days if _within(day, first, last)])
        documents = await self._documents(info for info in found if _number(info.key))
        return [_read(key, document, Compaction.from_json) for key, document in documents]

    async def facts(self, key: str) -> SegmentFacts | None:
        """What is known of a segment without its rows; None where it is gone. LakeFileError where it is no segment."""
        info = await self.objects.head(self.bucket, key)
        if info is None:
            return None
        try:
            return SegmentFacts.of(info.metadata)
        except (KeyError, ValueError):
            return await self._footer(key)  # a copy of the lake may have lost what lay beside its objects

    async def put_segment(self, key: str, body: bytes, facts: SegmentFacts) -> bool:
        """Writes a segment unless there is one; False where another has these entries."""
        return await self.objects.put(
            self.bucket, key, body, content_type=CONTENT_TYPE, metadata=facts.metadata(), if_absent=True
        )

    async def put_marker(self, marker: Marker) -> bool:
        """Begins an epoch; False where another has begun it."""
        key = self.layout.marker(marker.table, marker.partition, marker.epoch)
        return await self.objects.put(self.bucket, key, marker.to_json(), content_type=_JSON, if_absent=True)

    async def _footer(self, key: str) -> SegmentFacts | None:
        import pyarrow.parquet as pq  # noqa: PLC0415  # who only lists needs none

        body = await self.objects.get(self.bucket, key)
        if body is None:
            return None
        try:
            known = pq.read_metadata(BytesIO(body)).metadata or {}
            told = {name.decode().removeprefix("fetchbox."): value.decode() for name, value in known.items()}
            return SegmentFacts.of(told)
        except (KeyError, ValueError, OSError) as error:
            raise LakeFileError(key, f"is no segment: {error}") from error

    async def _documents(self, found: Iterable[ObjectInfo]) -> list[tuple[str, bytes]]:
        """Documents with their keys, in order, without those that went meanwhile."""
        keys = sorted(info.key for info in found)
        bodies = await _together(lambda key: self.objects.get(self.bucket, key), keys)
        return [(key, body) for key, body in zip(keys, bodies, strict=True) if body is not None]

    async def _below(self, prefixes: Sequence[str]) -> list[str]:
        """The folders directly below some prefixes, as prefixes."""
        found = await _together(lambda prefix: self.objects.folders(self.bucket, prefix), prefixes)
        return [f"{prefix}{name}/" for prefix, names in zip(prefixes, found, strict=True) for name in names]

    async def _lists(self, prefixes: Sequence[str]) -> list[ObjectInfo]:
        return [info for infos in await _together(self._list, prefixes) for info in infos]

    async def _list(self, prefix: str) -> list[ObjectInfo]:
        return await self.objects.list(self.bucket, prefix, limit=sys.maxsize)

    def _stored(self, found: Iterable[ObjectInfo]) -> list[Stored]:
        segments = ((self.layout.parse(info.key), info) for info in found)
        stored = [Stored(segment, info.key, info.size, info.modified_ms) for segment, info in segments if segment]
        return sorted(stored, key=lambda one: one.segment)


def _within(prefix: str, first: date | None, last: date | None) -> bool:
    """Whether a prefix is that of a day in a range."""
    found = _DAY.search(prefix)
    try:
        day = date.fromisoformat(found[1]) if found else None
    except ValueError:
        return False
    return day is not None and (first or date.min) <= day <= (last or date.max)


def _number(key: str) -> int:
    """The number of a document; 0 where the key is of something else."""
    found = _DOCUMENT.fullmatch(key.rpartition("/")[2])
    return int(found["number"]) if found else 0


def _read(key: str, document: bytes, read: Callable[[bytes], T]) -> T:
    try:
        return read(document)
    except (ValueError, TypeError, KeyError) as error:
        raise LakeFileError(key, f"cannot be read: {error}") from error


async def _together(call: Callable[[str], Awaitable[T]], keys: Iterable[str]) -> list[T]:
    """The results of a call for each key, in order, a few at a time."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(key: str) -> T:
        async with gate:
            return await call(key)

    return list(await asyncio.gather(*(one(key) for key in keys)))
