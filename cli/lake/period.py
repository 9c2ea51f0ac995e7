"""Which days a command is about: those that were named, else the last seven whole ones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from cli.problems import USAGE, CommandError

if TYPE_CHECKING:
    from pipeline.reports.report import Period

WHOLE_DAYS: Final = 7
_MOST_DAYS: Final = 3660


def period(first: str, last: str, zone: str, now: datetime | None = None) -> Period:
    """From `--from` to `--to`, both ISO 8601 or empty, by the clock of `zone`. CommandError for what is none."""
    from pipeline.reports.report import Period  # noqa: PLC0415  # of a layer that most commands do not need

    today = (now or datetime.now(UTC)).astimezone(_zone(zone)).date()
    end = _day("--to", last) if last else today - timedelta(days=1)
    begin = _day("--from", first) if first else end - timedelta(days=WHOLE_DAYS - 1)
    if begin > end:
        rule = "--to is a day not before that of --from" + ("." if last else "; without it, it is yesterday.")
        raise _wrong(f"the period ends before it begins: {begin} to {end}", rule)
    if end > today:
        raise _wrong(f"{end} is still to come: it is {today} in {zone}", "Leave --to out for the last whole day.")
    if (end - begin).days >= _MOST_DAYS:
        raise _wrong(f"{(end - begin).days + 1:,} days are too many", f"At most {_MOST_DAYS:,} at a time.")
    return Period(begin, end, zone)


def ingest_days(first: str, last: str) -> tuple[date, date]:
    """From `--from` to `--to` in UTC; without one of them there is no bound on its side. CommandError as above."""
    begin = _day("--from", first) if first else date.min
    end = _day("--to", last) if last else date.max
    if begin > end:
        raise _wrong(f"the days end before they begin: {begin} to {end}", "--to is a day not before that of --from.")
    return begin, end


def zone(name: str) -> str:
    """The name of a time zone. CommandError for what is none."""
    return _zone(name).key


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _wrong(f"{option}: {text!r} is no day", "Write it like 2026-11-27.") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # it is looked up as a file: a folder, or a path that leads elsewhere
        raise _wrong(f"{name!r} is no time zone", "Write it like Europe/Berlin, or UTC.") from None


def _wrong(message: str, hint: str) -> CommandError:
    return CommandError(message, USAGE, hint=hint)
