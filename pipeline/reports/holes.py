"""The holes of the lake that a report is about: epochs that began since entries of its period may be missing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from kernel.log.offsets import parse_id
from pipeline.lake.epochs import Marker
from pipeline.lake.store import LakeStore
from pipeline.reports.report import Hole, Period
from pipeline.tables import TABLES


async def holes(store: LakeStore, period: Period) -> list[Hole]:
    """Those of all tables, in the order in which they were found out. ObjectStoreError where the lake is not there."""
    return of_period([marker for table in TABLES for marker in await store.markers(table.name)], period)


def of_period(markers: Iterable[Marker], period: Period) -> list[Hole]:
    """The markers whose missing entries may be of the period: those between the last known one and the finding out."""
    zone = ZoneInfo(period.zone)
    begin = datetime.combine(period.first, time(), zone)
    end = datetime.combine(period.last + timedelta(days=1), time(), zone)
    found = sorted(map(_hole, markers), key=lambda hole: (hole.found, hole.table, hole.partition))
    return [hole for hole in found if (hole.after is None or hole.after < end) and hole.found >= begin]


def _hole(marker: Marker) -> Hole:
    return Hole(
        table=marker.table,
        partition=marker.partition,
        epoch=marker.epoch,
        reason=marker.reason,
        missing=marker.missing,
        after=_time(marker.after),
        until=_time(marker.until),
        found=datetime.fromtimestamp(marker.detected_ms / 1000, UTC),
    )


def _time(position: str) -> datetime | None:
    ms = parse_id(position)[0]
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None
