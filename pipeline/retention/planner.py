"""Decides what becomes of everything in the lake. Pure: the same listing at the same time has the same plan.

Days are whole ones in UTC, and what counts is the day on which an entry came, never what its message says about time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pipeline.lake.contents import Contents
from pipeline.lake.layout import LakeSegment, day_of
from pipeline.retention import rest
from pipeline.retention.caps import capped
from pipeline.retention.days import DayPlanner
from pipeline.retention.ledger import snapshots
from pipeline.retention.policy import Policy
from pipeline.retention.verdicts import Compacting, Planned, RetentionDecision, RetentionPlan, RetentionVerdict
from pipeline.tables import LOGS, TABLES


def plan(contents: Contents, policy: Policy, now_ms: int) -> RetentionPlan:
    """What retention does at `now_ms`: a decision for every object, with its reason."""
    positions = _positions(raw.segment for day in contents.days.values() for raw in day.raw)
    days, over = _tables(contents, policy, positions, now_ms)
    quarantined, above = rest.quarantine(contents.quarantine, policy, positions, now_ms)
    ledger, beyond = snapshots(contents.snapshots.values(), policy, now_ms)
    decisions = (
        *(decision for day in days for decision in day.decisions),
        *quarantined,
        *rest.markers(contents.markers, policy, now_ms),
        *ledger,
        *rest.records(contents.records, policy, now_ms),
        *(
            RetentionDecision(info, RetentionVerdict.KEEP, "is nothing that is known here", "unknown")
            for info in contents.unknown
        ),
    )
    return RetentionPlan(
        now_ms=now_ms,
        decisions=decisions,
        compactions=tuple(sorted((day.compacting for day in days if day.compacting), key=_turn)),
        retirings=tuple(day.retiring for day in days if day.retiring),
        over=tuple(words for words in (*over, above, beyond) if words),
    )


def _tables(
    contents: Contents, policy: Policy, positions: frozenset[LakeSegment], now_ms: int
) -> tuple[list[Planned], list[str]]:
    days: list[Planned] = []
    over: list[str] = []
    for table in TABLES:
        rule = policy.tables[table.name]
        own = [day for (name, _), day in contents.days.items() if name == table.name]
        planners = [DayPlanner(day, rule, policy, positions, now_ms) for day in own]
        planned, words = capped(table.name, rule.max_bytes, planners, day_of(now_ms))
        days += planned
        over.append(words)
    return days, over


def _turn(compacting: Compacting) -> tuple[bool, str, date]:
    """Logs come first: whose lines are whose is found in tables whose rows a compaction may leave out."""
    return compacting.table != LOGS.name, compacting.table, compacting.day


def _positions(segments: Iterable[LakeSegment]) -> frozenset[LakeSegment]:
    """The newest segment of each partition: where it ends exporters go on, and nothing else tells them."""
    newest: dict[tuple[str, int], LakeSegment] = {}
    for segment in segments:
        place = (segment.table, segment.partition)
        newest[place] = max(segment, newest.get(place, segment), key=lambda one: (one.epoch, one.day, one.start))
    return frozenset(newest.values())
