"""`google.protobuf.Timestamp` and `Duration` in JSON (RFC 3339; decimal seconds).

Dates and times of day come again and again, so their arithmetic is remembered.
"""

import re
from datetime import date
from functools import lru_cache
from typing import Any

from gateway.mismatch import MismatchError

_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_DURATION = re.compile(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?s", re.ASCII)
_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799
_LONGEST = 315_576_000_000
_SECOND = 1_000_000_000


def text(value: Any) -> str:
    """The value, if it is a string."""
    if type(value) is not str:
        raise MismatchError("is no string")
    return value


def read_timestamp(message: Any, value: Any, _depth: int) -> None:
    """RFC 3339 with an offset, at most nine digits, years 1 to 9999."""
    match = _TIMESTAMP.fullmatch(text(value))
    if match is None:
        raise MismatchError("is no RFC 3339 time")
    day, clock, fraction, sign, hours, minutes = match.groups()
    seconds = _days(day) * _DAY + _clock(clock)
    if sign:
        offset = _clock(f"{hours}:{minutes}:00")
        seconds -= offset if sign == "+" else -offset
        if not _EARLIEST <= seconds <= _LATEST:
            raise MismatchError("is outside the years 1 to 9999")
    message.seconds = seconds
    if fraction:
        message.nanos = _nanos(fraction)


@lru_cache(1024)
def _days(day: str) -> int:
    """Days since the epoch."""
    try:
        return date.fromisoformat(day).toordinal() - _EPOCH
    except ValueError:
        raise MismatchError("is no date") from None


@lru_cache(4096)
def _clock(clock: str) -> int:
    """Seconds since midnight."""
    hours, minutes, seconds = int(clock[:2]), int(clock[3:5]), int(clock[6:])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise MismatchError("is no time of day")
    return hours * 3600 + minutes * 60 + seconds


def write_timestamp(message: Any) -> str:
    """RFC 3339 in UTC."""
    return _timestamp(message, 0)


def write_timestamp_ms(message: Any) -> str:
    """The same with at least three decimals: then the text of times sorts as they do."""
    return _timestamp(message, 3)


def _timestamp(message: Any, decimals: int) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not (_EARLIEST <= seconds <= _LATEST and 0 <= nanos < _SECOND):
        raise MismatchError("is outside the years 1 to 9999")
    days, rest = divmod(seconds, _DAY)
    return f"{_date(days)}T{_time_of_day(rest)}{_fraction(nanos, decimals)}Z"


@lru_cache(1024)
def _date(days: int) -> str:
    return date.fromordinal(_EPOCH + days).isoformat()


@lru_cache(4096)
def _time_of_day(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def read_duration(message: Any, value: Any, _depth: int) -> None:
    """Decimal seconds with the suffix `s`, at most nine digits, within 10,000 years."""
    match = _DURATION.fullmatch(text(value))
    if match is None:
        raise MismatchError("is no duration like `1.5s`")
    sign = -1 if match[1] else 1
    seconds, nanos = int(match[2]), _nanos(match[3] or "0")
    if seconds > _LONGEST or (seconds == _LONGEST and nanos):
        raise MismatchError("is longer than 10,000 years")
    message.seconds, message.nanos = sign * seconds, sign * nanos


def write_duration(message: Any) -> str:
    """Decimal seconds."""
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _LONGEST or abs(nanos) >= _SECOND or seconds * nanos < 0:
        raise MismatchError("is no valid duration")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _nanos(digits: str) -> int:
    return int(digits.ljust(9, "0"))


def _fraction(nanos: int, decimals: int = 0) -> str:
    """0, 3, 6 or 9 digits, and no fewer than `decimals`."""
    if not nanos and not decimals:
        return ""
    if nanos % 1_000_000 == 0:
        return f".{nanos // 1_000_000:03d}"
    if nanos % 1_000 == 0:
        return f".{nanos // 1_000:06d}"
    return f".{nanos:09d}"
