"""Whether another Redis has the past that was exported: its newest entries against those in the lake.

Counts do not tell where a replica that was promoted has lost as many entries as it was given since.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from typing import Final

import pyarrow.parquet as pq

from kernel.log.offsets import parse_id
from pipeline.export.judging import before
from pipeline.export.source import ExportSource
from pipeline.lake.layout import day_of
from pipeline.lake.store import LakeStore, Stored

_KINDS: Final = ("raw", "quarantine")


async def lacking(lake: LakeStore, source: ExportSource, position: str) -> int:
    """How many of a source's entries of the last minutes up to `position` the lake should have and has not.

    Only what lies in segments that are there is compared: those of compacted days may be gone.
    """
    start = before(position)
    there = await source.ids(start, position)
    if not there:
        return 0
    days = sorted({day_of(parse_id(one)[0]) for one in (start, position)})
    stored = _reaching(await lake.segments_of(source.table.name, source.partition, days), start)
    known: set[str] = set()
    ranges: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for one in stored:
        facts = await lake.facts(one.key)
        ids = [await _ids(lake, lake.layout.segment(one.segment, kind)) for kind in _KINDS]
        if facts is None or ids[0] is None:
            continue  # it went while we looked
        ranges.append((one.segment.start, parse_id(facts.last)))
        known.update(*(found for found in ids if found is not None))
    unknown = (parse_id(one) for one in there if one not in known)
    return sum(any(begin < one <= end for begin, end in ranges) for one in unknown)


def _reaching(stored: Sequence[Stored], start: str) -> list[Stored]:
    """The segments that may hold entries behind `start`: of each epoch those that begin behind it, and one before."""
    found: list[Stored] = []
    for _, group in groupby(stored, lambda one: one.segment.epoch):
        own = list(group)
        earlier = sum(one.segment.start <= parse_id(start) for one in own)
        found += own[max(0, earlier - 1) :]
    return found


async def _ids(lake: LakeStore, key: str) -> list[str] | None:
    """The ids of the entries in a file; None where there is none."""
    body = await lake.objects.get(lake.bucket, key)
    if body is None:
        return None
    ids: list[str] = pq.read_table(BytesIO(body), columns=["entry_id"]).column("entry_id").to_pylist()
    return ids
