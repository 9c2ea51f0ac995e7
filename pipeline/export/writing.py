"""A page into a segment, and what of it is no row into quarantine.

The quarantine is written first, under the same key, so no crash can lose it. If one is there already, of an exporter
that died between the two or still runs, the segment ends no later than that one's would have.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import Exporter
from kernel.log.offsets import parse_id
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from pipeline.export.judging import State
from pipeline.export.quarantine import quarantine_rows
from pipeline.export.source import ExportSource, SourcePage
from pipeline.lake.layout import LakeSegment
from pipeline.lake.segments import SegmentFacts, encode
from pipeline.lake.store import LakeStore
from pipeline.schema.decoding import Decoded, decode

_log = get_logger("exporter")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A segment that is to be written."""

    page: SourcePage
    decoded: Decoded
    facts: SegmentFacts


class SegmentWriter:
    """Writes the segments of one source."""

    def __init__(self, source: ExportSource, lake: LakeStore, limits: Exporter) -> None:
        self._source = source
        self._lake = lake
        self._limits = limits

    async def write(self, state: State, page: SourcePage) -> SegmentFacts | None:
        """Writes what was read behind `state.position`, or the first part of it; None where another has written there.

        Raises `UNAVAILABLE` where the object store does not answer. It may have been written then: the next try tells.
        """
        table, partition = self._source.table, self._source.partition
        segment = LakeSegment.behind(table, partition, state.epoch, state.position, page.first)
        draft = await self._draft(state, page)
        if draft.decoded.quarantined:
            end = await self._quarantine(segment, draft)
            if parse_id(end) < parse_id(draft.facts.last):
                draft = await self._shortened(state, end)
        body = await asyncio.to_thread(encode, draft.decoded.batch, draft.facts.metadata())
        key = self._lake.layout.segment(segment)
        if not await self._lake.put_segment(key, body, draft.facts):
            return None
        self._tell(key, draft, len(body))
        return draft.facts

    async def _draft(self, state: State, page: SourcePage, end: str = "") -> _Draft:
        """`end`: how far the segment goes where the page is empty."""
        decoded = await asyncio.to_thread(decode, self._source.table, page.rows)
        count = len(page.rows)
        facts = SegmentFacts(
            first=page.first or end,
            last=page.last if page.rows else end,
            rows=count,
            bytes=page.bytes,
            added=0 if state.added is None else state.added + count,
            server=page.look.server,
        )
        return _Draft(page, decoded, facts)

    async def _quarantine(self, segment: LakeSegment, draft: _Draft) -> str:
        """Writes what could not be decoded; how far the quarantine of this segment goes, whoever wrote it."""
        key = self._lake.layout.segment(segment, "quarantine")
        rows = await asyncio.to_thread(quarantine_rows, self._source.table, draft.decoded.quarantined)
        body = await asyncio.to_thread(encode, rows, draft.facts.metadata())
        if await self._lake.put_segment(key, body, draft.facts):
            return draft.facts.last
        there = await self._lake.facts(key)
        return there.last if there else draft.facts.last

    async def _shortened(self, state: State, end: str) -> _Draft:
        limits = self._limits
        page = await self._source.read(state.position, max_rows=limits.max_rows, max_bytes=limits.max_bytes, until=end)
        return await self._draft(state, page, end)

    def _tell(self, key: str, draft: _Draft, size: int) -> None:
        topic, refused = self._source.table.topic, draft.decoded.quarantined
        metrics.EXPORT_SEGMENTS.labels(topic=topic).inc()
        metrics.EXPORT_BYTES.labels(topic=topic).inc(size)
        metrics.EXPORT_ROWS.labels(topic=topic).inc(draft.facts.rows - len(refused))
        metrics.EXPORT_QUARANTINED.labels(topic=topic).inc(len(refused))
        if refused:
            _log.error(
                "export_quarantined", stream=self._source.stream, key=key, count=len(refused), error=refused[0].error
            )
        _log.info("segment_written", key=key, count=draft.facts.rows, size=size)
