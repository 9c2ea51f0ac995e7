"""Size caps of tables: the oldest days go first, whole ones, and never the present day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pipeline.retention.days import DayPlanner
from pipeline.retention.verdicts import Planned


def capped(name: str, max_bytes: int, planners: Sequence[DayPlanner], today: date) -> tuple[list[Planned], str]:
    """What becomes of the days of a table, and what is still above the cap, as words; 0 bytes mean no cap.

    What no longer counts is not counted here either: it goes by itself, and other days would pay for it.
    """
    ordered = sorted(planners, key=lambda planner: planner.day.day)
    days = [planner.plan() for planner in ordered]
    total = sum(one.counted for one in days)
    for number, planner in enumerate(ordered):
        if not max_bytes or total <= max_bytes or planner.day.day >= today:
            break
        if days[number].counted:
            total -= days[number].counted
            days[number] = planner.retired(f"{name} has more than {max_bytes} bytes")
            total += days[number].counted
    return days, too_much(name, total, max_bytes)


def too_much(name: str, total: int, max_bytes: int) -> str:
    """The words for what stays above its cap; empty where nothing does."""
    if not max_bytes or total <= max_bytes:
        return ""
    return f"{name} has {total} bytes and may have {max_bytes}, but none of them may go"
