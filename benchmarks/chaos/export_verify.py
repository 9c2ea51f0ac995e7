"""What must be true of the lake afterwards, whatever was killed."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Final

import pyarrow.parquet as pq

from benchmarks.chaos.export_blows import Split
from benchmarks.chaos.export_producers import JUNK, Produced, Record
from fetchbox.config.v1.config_pb2 import Config
from kernel.errors import FetchboxError
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.service.resources import Resources
from pipeline.bootstrap import finish
from pipeline.lake.epochs import Marker
from pipeline.lake.store import LakeStore
from pipeline.tables import BY_NAME, DLQ, FLOWS

Rows = dict[int, dict[str, str]]
"""Names of the rows of a table by partition and key, each key once, as readers have it."""
_NAMED: Final = {DLQ.name: "id", FLOWS.name: "flow_id"}
"""The column with the name of a record; of the others `job_id`."""
_PAUSE: Final = 0.1


async def problems(config: Config, resources: Resources, made: Produced, splits: Sequence[Split]) -> list[str]:
    """Every broken promise, one line each; empty when all was kept. Brings the rest into the lake first."""
    await _finished(config, resources)
    again = await _finished(config, resources)
    found = [f"{again} entries are exported again"] if again else []
    lake = LakeStore(resources.objects, config)
    for table in BY_NAME:
        rows, faults = await _rows(lake, table, "raw")
        junk, more = await _rows(lake, table, "quarantine")
        markers = await lake.markers(table)
        found += [f"{table}: {fault}" for fault in (*faults, *more)]
        partitions = {partition for name, partition in made.accepted if name == table} | set(rows)
        for partition in sorted(partitions):
            records = made.accepted[table, partition]
            there = rows.get(partition, {}) | dict.fromkeys(junk.get(partition, {}), JUNK)
            told = [marker for marker in markers if marker.partition == partition]
            doubtful = Counter(made.doubtful[table])
            here = (
                *_foreign(there, records, doubtful),
                *_missing(table, partition, there, records, doubtful, told, splits),
            )
            found += [f"{table}/{partition}: {fault}" for fault in here]
    return found


async def _finished(config: Config, resources: Resources) -> int:
    """Everything is in the lake; how many entries that were. It goes on where it was cut off, as it does for people."""
    while True:
        try:
            return await finish(config, resources, lambda *_: None)
        except FetchboxError:
            await asyncio.sleep(_PAUSE)


async def _rows(lake: LakeStore, table: str, kind: str) -> tuple[Rows, list[str]]:
    """The rows of a table, and what is wrong with them on its own."""
    rows: Rows = defaultdict(dict)
    seen: Counter[tuple[int, int, str]] = Counter()
    faults = []
    for stored in await lake.segments(table, kind=kind):
        body = await lake.objects.get(lake.bucket, stored.key)
        held = pq.read_table(BytesIO(body or b"")).to_pylist()
        partition, epoch = stored.segment.partition, stored.segment.epoch
        for row in held:
            key = f"{row['flow_id']}/{row['entry_id']}" if table == FLOWS.name else row["entry_id"]
            name = JUNK if kind == "quarantine" else row[_NAMED.get(table, "job_id")]
            seen[partition, epoch, key] += 1
            if rows[partition].setdefault(key, name) != name:
                faults.append(f"{key} is {name} and {rows[partition][key]}")
    if (
        kind == "raw"
    ):  # who dies between a quarantine and its segment leaves rows that the next one puts elsewhere again
        faults += [f"{place} is there {count} times" for place, count in seen.items() if count > 1]
    return rows, faults


def _foreign(there: Mapping[str, str], records: Mapping[str, Record], doubtful: Mapping[str, int]) -> Iterator[str]:
    for key, name in there.items():
        known = records.get(key)
        if known is None and not doubtful.get(name):
            yield f"{key} {name} was never accepted"
        elif known is not None and known.name != name:
            yield f"{key} is {name}, and was {known.name}"


def _missing(
    table: str,
    partition: int,
    there: Mapping[str, str],
    records: Mapping[str, Record],
    doubtful: Mapping[str, int],
    markers: Sequence[Marker],
    splits: Sequence[Split],
) -> Iterator[str]:
    """A marker names and counts each gap; what a failover lost was never there, or a marker names it too."""
    gone = [key for key in records if key not in there]
    lost = [key for key in gone if any(_may_be_lost(key, records[key], split) for split in splits)]
    holes = sum(marker.missing for marker in markers if marker.reason == "hole")
    missing, most = len(gone) - len(lost), len(gone) + sum(doubtful.values())
    if not missing <= holes <= most:
        yield f"{missing} to {most} records are not there, and markers count {holes}: {sorted(gone)[:3]} {markers}"
    if gone or markers:
        print(f"{table}/{partition}: {missing} are not there, lost with Redis {len(lost)}, {_told(markers)}")
    if table != FLOWS.name and not any(marker.reason == "rewritten" for marker in markers):
        stream = keys.stream(BY_NAME[table].topic, partition)
        for key in there.keys() & records.keys():
            if any(_was_lost(key, records[key], stream, split) for split in splits):
                yield f"{key} was lost by a failover after it was exported, and no marker names it"
                return


def _may_be_lost(key: str, record: Record, split: Split) -> bool:
    return record.server <= split.server and parse_id(key.rpartition("/")[2])[0] >= split.since_ms


def _was_lost(key: str, record: Record, stream: str, split: Split) -> bool:
    last = split.last.get(stream)
    return last is not None and record.server == split.server and parse_id(key) > parse_id(last)


def _told(markers: Sequence[Marker]) -> str:
    return ", ".join(f"epoch {marker.epoch}: {marker.reason} of {marker.missing}" for marker in markers)
