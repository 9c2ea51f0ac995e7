"""How long an endpoint asks to wait: `Retry-After`, the headers of rate limits, and what stands in the body."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from worker_svc.fetch.retry_after import retry_after

_TOO_MANY: Final = 429
_EPOCH: Final = 1_000_000_000.0
"""So many seconds are a moment, not a wait."""
_MILLIS: Final = 100_000_000_000.0
"""And so many are milliseconds."""
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)", re.ASCII | re.IGNORECASE)
_SPAN: Final = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII | re.IGNORECASE)
_RESET: Final = re.compile(r"(?:x-|anthropic-)?rate-?limit(?:bysize)?-(?:.*-)?reset(?:-.*)?", re.ASCII)
_LONGEST: Final = 64
_SAID: Final = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:[\d.]{1,12} ?(?:ms|s|m|h)(?![a-z]))+|[\d.]{1,12} ?[smh])",
    re.ASCII | re.IGNORECASE,
)
_OF_HEADER: Final = re.compile(r"(?:^|[;,\s])(remaining|r|reset|t)=\"?(\d{1,12})", re.ASCII | re.IGNORECASE)
"""What the one header `RateLimit` of the IETF's drafts says: `limit=9, remaining=0, reset=19`, or `"name";r=0;t=19`."""
_MILLISECONDS: Final = ("retry-after-ms", "x-ms-retry-after-ms")
_TOLD: Final = ("retry_after", "retry_after_seconds", "retryAfter", "estimated_time")
"""Where an error has the seconds."""
_RETRY_INFO: Final = "google.rpc.RetryInfo"


def wait_asked(status: int, headers: Mapping[str, str], error: Any, now: float, longest: float) -> float | None:
    """The seconds that an answer asks to wait, at most `longest`. None where it asks for none.

    `error` is what its body tells; `now` is the time since the epoch in seconds.
    """
    wait = next((wait for name in _MILLISECONDS if (wait := _milliseconds(headers.get(name, "")))), None)
    if wait is None:
        value = headers.get("retry-after", "")
        wait = retry_after(value, now, headers.get("date", "")) or _span(value)
    if wait is None and status == _TOO_MANY:
        wait = _until_reset(headers, now) or _until_reset(_headers_within(error), now)
    if wait is None:
        wait = wait_told(error)
    return None if wait is None else min(wait, longest)


def wait_told(error: Any) -> float | None:
    """The seconds that an error asks to wait: Google's `RetryInfo`, or `try again in 20s` in its message."""
    if not isinstance(error, dict):
        return None
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith(_RETRY_INFO):
            return _span(str(detail.get("retryDelay", "")))
    told = next((wait for name in _TOLD if (wait := _span(str(error.get(name, ""))))), None)
    said = _SAID.search(str(error.get("message", ""))[:2_000])
    return told or (_span(said[1].replace(" ", "")) if said else None)


def _headers_within(error: Any) -> Mapping[str, str]:
    """The headers of the provider behind a gateway, as OpenRouter tells them in the body."""
    behind = error.get("metadata") if isinstance(error, dict) else None
    headers = behind.get("headers") if isinstance(behind, dict) else None
    return {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, dict) else {}


def _milliseconds(text: str) -> float | None:
    wait = _number(text)
    return None if wait is None else wait / 1000


def _until_reset(headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait among the limits that are used up, or among all where none says how much is left."""
    waits = [(_left(headers, name), wait) for name, wait in _resets(headers, now)]
    waits += _limits_of(headers.get("ratelimit", ""))
    used_up = [wait for left, wait in waits if left == 0]
    return max(used_up or [wait for left, wait in waits if left is None], default=None)


def _resets(headers: Mapping[str, str], now: float) -> Iterator[tuple[str, float]]:
    for name, value in headers.items():
        if _RESET.fullmatch(name.lower()):
            wait = _moment(value, now)
            if wait is not None:
                yield name.lower().replace("-reset", "-remaining", 1).removesuffix("-after"), wait


def _limits_of(header: str) -> list[tuple[float | None, float]]:
    """What is left and how long to wait, for each limit of a header `RateLimit`."""
    limits: list[tuple[float | None, float]] = []
    left: float | None = None
    for name, number in _OF_HEADER.findall(header[: _LONGEST * 8]):
        if name.lower() in {"remaining", "r"}:
            left = float(number)
        elif (wait := _positive(float(number))) is not None:
            limits.append((left, wait))
    return limits


def _left(headers: Mapping[str, str], name: str) -> float | None:
    """How much of a limit is left."""
    try:
        return float(headers[name][:_LONGEST])
    except (KeyError, ValueError):
        return None


def _moment(text: str, now: float) -> float | None:
    """A wait that is told as one, or as its end: seconds or milliseconds of the epoch, or RFC 3339."""
    wait = _span(text)
    if wait is None:
        try:
            return _positive(datetime.fromisoformat(text.strip()[:_LONGEST]).timestamp() - now)
        except (ValueError, OverflowError, OSError):
            return None
    if wait >= _MILLIS:
        wait /= 1000
    return _positive(wait - now) if wait >= _EPOCH else wait


def _span(text: str) -> float | None:
    """`7`, `1.5`, `120ms`, `6m0s`: seconds; None for anything else, and for no time."""
    text = text.strip()[:_LONGEST]
    if _SPAN.fullmatch(text):
        return _positive(sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(text)))
    return _number(text)


def _number(text: str) -> float | None:
    try:
        return _positive(float(text.strip()[:_LONGEST]))
    except ValueError:
        return None


def _positive(wait: float) -> float | None:
    return wait if math.isfinite(wait) and wait > 0 else None
