"""Times as people read and write them."""

import re
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"([0-9]+)([smhd])")


def shown(timestamp: Timestamp) -> str:
    """`2026-11-28 10:00:00Z`; empty for none."""
    if not timestamp.seconds:
        return ""
    return datetime.fromtimestamp(timestamp.seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock(timestamp: Timestamp) -> str:
    """`10:00:00.123`, for log lines."""
    moment = datetime.fromtimestamp(timestamp.seconds, UTC)
    return f"{moment:%H:%M:%S}.{timestamp.nanos // 1_000_000:03}"


def age_seconds(text: str) -> int:
    """The seconds of `30s`, `15m`, `12h` or `7d`. ValueError for anything else."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no age: write it like 30s, 15m, 12h or 7d")
    return int(match[1]) * _SECONDS[match[2]]
