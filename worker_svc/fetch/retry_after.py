"""`Retry-After` (RFC 9110 section 10.2.3): seconds, or a date in one of three forms; strictly, nothing else."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_TIME: Final = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_MONTH: Final = rf"(?P<month>{'|'.join(_MONTHS)})"
_FORMS: Final = (
    re.compile(rf"{_DAY}, (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT", re.ASCII),
    re.compile(rf"{_DAY}[a-z]*day, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT", re.ASCII),
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})", re.ASCII),
)
_SECONDS: Final = re.compile(r"\d+", re.ASCII)
_LONGEST_DIGITS: Final = 12
_FOREVER: Final = 10.0**12


def retry_after(value: str, now: float, server_date: str = "") -> float | None:
    """How many seconds the server asks to wait; None for what is no `Retry-After`, or is over already.

    `now` is the time since the epoch in seconds. A date counts from the server's own `Date` where it gives one, so that
    a wrong clock on either side does not matter. It names a whole second, so the wait lasts until that second's end.
    """
    text = value.strip(" \t")
    if _SECONDS.fullmatch(text):
        digits = text.lstrip("0")
        seconds = _FOREVER if len(digits) > _LONGEST_DIGITS else float(digits or 0)
        return seconds or None
    until = http_date(text)
    if until is None:
        return None
    from_date = http_date(server_date.strip(" \t"))
    if from_date is not None:
        return until - from_date if until > from_date else None
    return until + 1 - now if until > now else None


def http_date(text: str) -> float | None:
    """The seconds since the epoch of an HTTP date (RFC 9110 section 5.6.7); None for anything else."""
    for form in _FORMS:
        match = form.fullmatch(text)
        if match is not None:
            return _timestamp(match)
    return None


def _timestamp(match: re.Match[str]) -> float | None:
    part = match.groupdict()
    year = int(part["year"])
    if len(part["year"]) == 2:
        year += 1900 if year >= 70 else 2000
    try:
        moment = datetime(
            year,
            _MONTHS.index(part["month"]) + 1,
            int(part["day"]),
            int(part["hour"]),
            int(part["minute"]),
            min(int(part["second"]), 59),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return moment.timestamp()
