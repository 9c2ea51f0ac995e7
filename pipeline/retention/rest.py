"""What becomes of all that is no day of a table: rows in quarantine, markers of epochs, records of retention itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import replace
from datetime import date

from kernel.objects import ObjectInfo
from pipeline.lake.contents import MarkerFile, Raw
from pipeline.lake.layout import LakeSegment, day_of
from pipeline.retention.caps import too_much
from pipeline.retention.policy import Policy
from pipeline.retention.verdicts import RetentionDecision, RetentionVerdict
from pipeline.retention.words import span


def quarantine(
    found: Iterable[Raw], policy: Policy, positions: Container[LakeSegment], now_ms: int
) -> tuple[list[RetentionDecision], str]:
    """Rows in quarantine, by their age and the cap of all tables together; and what is still above it, as words."""
    days: dict[date, list[RetentionDecision]] = defaultdict(list)
    for raw in found:
        days[raw.segment.day].append(_quarantined(raw, policy, positions, now_ms))
    cap = policy.quarantine.max_bytes
    total = sum(_kept(of_day) for of_day in days.values())
    for day in sorted(days):
        if not cap or total <= cap or day >= day_of(now_ms):
            break
        total -= _kept(days[day])
        days[day] = [_without(one, f"quarantine has more than {cap} bytes") for one in days[day]]
        total += _kept(days[day])
    return [one for of_day in days.values() for one in of_day], too_much("quarantine", total, cap)


def markers(found: Iterable[MarkerFile], policy: Policy, now_ms: int) -> list[RetentionDecision]:
    """Markers of epochs: as long as any table, and the newest one of each partition for ever."""
    found = list(found)
    newest: dict[tuple[str, int], int] = {}
    for marker in found:
        place = (marker.table, marker.partition)
        newest[place] = max(marker.epoch, newest.get(place, 0))
    decisions = []
    for marker in found:
        area = f"epochs/{marker.table}"
        if marker.epoch == newest[marker.table, marker.partition]:
            decisions.append(
                RetentionDecision(marker.info, RetentionVerdict.KEEP, "the exporter goes on from here", area)
            )
        else:
            decisions.append(_aged(marker.info, area, policy, now_ms))
    return decisions


def records(found: Iterable[ObjectInfo], policy: Policy, now_ms: int) -> list[RetentionDecision]:
    """What runs of retention have told: as long as any table."""
    return [_aged(info, "retention", policy, now_ms) for info in found]


def _quarantined(raw: Raw, policy: Policy, positions: Container[LakeSegment], now_ms: int) -> RetentionDecision:
    area, day = f"quarantine/{raw.segment.table}", raw.segment.day
    kept = policy.quarantine.retention_ms
    if raw.segment in positions:
        return RetentionDecision(
            raw.info, RetentionVerdict.KEEP, "the exporter goes on from its segment", area, day, pinned=True
        )
    if policy.gone(day, kept, now_ms):
        return RetentionDecision(raw.info, RetentionVerdict.DROP, f"ended more than {span(kept)} ago", area, day)
    return RetentionDecision(raw.info, RetentionVerdict.KEEP, f"is kept {span(kept)}", area, day)


def _without(one: RetentionDecision, why: str) -> RetentionDecision:
    return (
        one
        if one.pinned or one.verdict is RetentionVerdict.DROP
        else replace(one, verdict=RetentionVerdict.DROP, why=why)
    )


def _kept(decisions: Iterable[RetentionDecision]) -> int:
    return sum(one.info.size for one in decisions if one.verdict is RetentionVerdict.KEEP)


def _aged(info: ObjectInfo, area: str, policy: Policy, now_ms: int) -> RetentionDecision:
    kept, day = policy.longest_ms, day_of(info.modified_ms)
    if policy.gone(day, kept, now_ms):
        return RetentionDecision(info, RetentionVerdict.DROP, f"is older than {span(kept)}", area, day)
    return RetentionDecision(
        info, RetentionVerdict.KEEP, f"is kept {span(kept)}, as the table that is kept longest", area, day
    )
