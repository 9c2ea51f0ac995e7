"""One partition on its way into the lake.

The chain of its segments is all the state there is. `load` finds its end by listing; `step` reads what lies behind,
judges whether the stream still goes on there, and writes the next segment under a key that is its start. If another
exporter was faster the key is taken: then its segment is the next link, and this one follows. A process that dies at
any moment leaves a chain that the next one finds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fetchbox.config.v1.config_pb2 import Exporter
from kernel.log.offsets import START, parse_id
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from pipeline.export.comparing import lacking
from pipeline.export.judging import Break, State, before, is_another, judged
from pipeline.export.source import ExportSource, SourceLook, SourcePage
from pipeline.export.writing import SegmentWriter
from pipeline.lake.epochs import FIRST, Marker
from pipeline.lake.store import LakeStore

_NOTHING: Final = State(FIRST, START, None, "")

_log = get_logger("exporter")


class Chain:
    """One partition. Its methods raise `UNAVAILABLE` where Redis or the object store do not answer; then try again."""

    def __init__(self, source: ExportSource, lake: LakeStore, limits: Exporter) -> None:
        self.source = source
        self.state: State | None = None
        """How far the lake has come; None where that is to be looked up."""
        self.written = 0
        """Entries that this process has brought into the lake."""
        self._lake = lake
        self._limits = limits
        self._writer = SegmentWriter(source, lake, limits)
        self.denied: tuple[str, int] | None = None
        """The word of another exporter that was not found true in the lake: it is of another lake."""
        self._heard: tuple[str, int] | None = None

    async def load(self) -> State:
        """Finds the end of the chain in the lake."""
        table, partition, heard = self.source.table.name, self.source.partition, self._heard
        epoch = await self._lake.epoch(table, partition)
        newest = await self._lake.newest(table, partition, epoch)
        facts = await self._lake.facts(newest.key) if newest else None
        if facts is not None:
            mean = facts.bytes / max(1, facts.rows)
            self.state = State(epoch, facts.last, facts.added or None, facts.server, mean, facts.added)
        elif marker := await self._lake.marker(table, partition, epoch):
            self.state = State(epoch, marker.start, marker.added, marker.server)
        else:
            self.state = replace(_NOTHING, epoch=epoch)
        self.denied = heard if heard and _is_beyond(heard, self.state) else None
        return self.state

    def notice(self, look: SourceLook) -> State | None:
        """The state after a look at the source; None where it is to be looked up."""
        self.state = self.state and self.state.seen(look)
        return self.state

    def hear(self, position: str, epoch: int) -> None:
        """Another exporter may have come further: then the end of the chain is looked up, once for each such word."""
        word = (position, epoch)
        if self.state is not None and word != self._heard and _is_beyond(word, self.state):
            self._heard = word
            self.state = None

    async def step(self) -> bool:
        """Writes one more segment, or begins an epoch where one is due; whether there may be more to do."""
        state = await self._begun()
        limits = self._limits
        page = await self.source.read(state.position, max_rows=limits.max_rows, max_bytes=limits.max_bytes)
        broken = judged(state, page) or await self._compared(state, page)
        if broken is not None:
            await self._begin(state, broken, page.look)
            return True
        state = self.state = _agreed(state, page)
        if not page.rows:
            return False
        if await self._lake.has_begun(self.source.table.name, self.source.partition, state.epoch + 1):
            self._follow()
            return True
        facts = await self._writer.write(state, page)
        if facts is None:
            self._follow()
            return True
        self.written += facts.rows
        mean = facts.bytes / max(1, facts.rows)
        self.state = replace(state, position=facts.last, added=facts.added or None, mean=mean)
        return facts.last != page.last or not page.ended

    async def _begun(self) -> State:
        """The state, with what was gone before the first entry of all was read."""
        state = self.state or await self.load()
        if state.position == START and state.added is None:
            state = self.state = state.seen(await self.source.look(START))
        return state

    async def _compared(self, state: State, page: SourcePage) -> Break | None:
        """What the entries themselves say where another Redis answers than before."""
        if state.position == START or not is_another(state, page.look):
            return None
        count = await lacking(self._lake, self.source, state.position)
        return Break("rewritten", before(state.position)) if count else None

    async def _begin(self, state: State, broken: Break, look: SourceLook) -> None:
        """Begins the next epoch, and raises the alarm; or follows the exporter that has.

        What another exporter has brought into the lake may be gone from the stream: only who is at the end of the chain
        can tell what is missing.
        """
        source, end = self.source, await self.load()
        if (end.epoch, end.position) != (state.epoch, state.position):
            self._follow()
            return
        marker = Marker(
            reason=broken.reason,
            table=source.table.name,
            partition=source.partition,
            epoch=state.epoch + 1,
            after=state.position,
            start=broken.start,
            until=look.last,
            missing=broken.missing,
            detected_ms=look.now_ms,
            server=look.server,
            added=broken.added,
        )
        if not await self._lake.put_marker(marker):
            self._follow()
            return
        _alarm(source, marker)
        self.state = State(marker.epoch, marker.start, marker.added, look.server, state.mean, look.added)

    def _follow(self) -> None:
        """Another exporter was faster: the end of the chain is looked up anew."""
        metrics.EXPORT_RACES.inc()
        self.state = None


def _is_beyond(word: tuple[str, int], state: State) -> bool:
    position, epoch = word
    return (epoch, parse_id(position)) > (state.epoch, parse_id(state.position))


def _agreed(state: State, page: SourcePage) -> State:
    """The state, now that the stream goes on from there."""
    look, added = page.look, state.added
    if not look.counts:
        added = None
    elif added is None and page.ended:
        added = look.added - len(page.rows)
    return replace(state, added=added, server=look.server, most=max(state.most, look.added))


def _alarm(source: ExportSource, marker: Marker) -> None:
    metrics.EXPORT_HOLES.labels(topic=source.table.topic, reason=marker.reason).inc()
    metrics.EXPORT_MISSING.labels(topic=source.table.topic).inc(marker.missing)
    _log.error(
        "export_epoch_begun",
        stream=source.stream,
        epoch=marker.epoch,
        reason=marker.reason,
        after=marker.after,
        offset=marker.start,
        count=marker.missing,
    )
