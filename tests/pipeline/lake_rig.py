"""A lake that tests write: segments as exporters make them, and compactions of days."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import Message

from kernel.log.messages import PAYLOAD
from kernel.log.offsets import next_id, parse_id
from pipeline.lake.compaction import OTHERS, CompactFile, Compaction
from pipeline.lake.layout import LakeSegment, Layout, day_of
from pipeline.lake.segments import CONTENT_TYPE, SegmentFacts, encode
from pipeline.schema.decoding import decode
from pipeline.schema.rows import Row
from pipeline.tables import Table


@dataclass
class Lake:
    """`client` is boto3's. Everything is put at once and without waiting, so sync and async tests can use it."""

    client: Any
    bucket: str
    layout: Layout
    _ends: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def write(
        self, table: Table, entries: Iterable[tuple[int, Message]], *, partition: int = 0, epoch: int = 1
    ) -> list[str]:
        """Entries at their times (ms, rising) as one segment a day, behind what the epoch has; the keys."""
        last, rows = self._ends.get((table.name, partition, epoch), "0-0"), []
        for ms, message in entries:
            last = next_id(last, ms)
            rows.append(Row(partition, last, {PAYLOAD: message.SerializeToString()}))
        return self.write_rows(table, rows, partition=partition, epoch=epoch)

    def write_rows(self, table: Table, rows: Sequence[Row], *, partition: int = 0, epoch: int = 1) -> list[str]:
        """The same for rows, which bring their ids with them: those of timelines, and those that cannot be read."""
        keys = []
        for _, of_day in groupby(rows, key=lambda row: day_of(parse_id(row.id)[0])):
            keys.append(self._segment(table, list(of_day), partition, epoch))
        return keys

    def compact(
        self, table: Table, day: date, rows: pa.Table, replaces: Iterable[str], *, generation: int = 1
    ) -> Compaction:
        """One file with these rows in place of the segments `replaces`, and its commit."""
        commit = self.layout.compaction(table.name, day, generation)
        body = encode(rows, {})
        key = f"{commit.removesuffix('.json')}/attempt/{OTHERS}/00000.parquet"
        self.put(key, body)
        file = CompactFile(key, OTHERS, rows.num_rows, len(body), hashlib.sha256(body).hexdigest())
        done = Compaction(
            table.name, day.isoformat(), generation, 0, rows.num_rows, (), (file,), tuple(sorted(replaces))
        )
        self.put(commit, done.to_json())
        return done

    def put(self, key: str, body: bytes, metadata: dict[str, str] | None = None) -> None:
        """Any object."""
        self.client.put_object(
            Bucket=self.bucket, Key=key, Body=body, ContentType=CONTENT_TYPE, Metadata=metadata or {}
        )

    def read(self, key: str) -> pa.Table:
        """The rows of a file."""
        body = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return pq.read_table(pa.BufferReader(body))

    def keys(self, prefix: str = "") -> list[str]:
        """What there is below the root of the lake, in order."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{self.layout.root}{prefix}"
        )
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def _segment(self, table: Table, rows: list[Row], partition: int, epoch: int) -> str:
        place = (table.name, partition, epoch)
        start = self._ends.get(place, "0-0")
        self._ends[place] = rows[-1].id
        segment = LakeSegment.behind(table, partition, epoch, start, rows[0].id)
        size = sum(len(value) for row in rows for value in row.fields.values())
        facts = SegmentFacts(rows[0].id, rows[-1].id, len(rows), size, added=0, server="test")
        key = self.layout.segment(segment)
        self.put(key, encode(decode(table, rows).batch, facts.metadata()), facts.metadata())
        return key
