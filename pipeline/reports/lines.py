"""The lines of the table `logs` that reports are made of."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

_TEXTS: Final = ("outcome", "host", "code", "breaker", "event")
_NUMBERS: Final = ("duration_ms", "size", "open_ms")
_OUTCOMES: Final = "('done', 'failed', 'retry')"
_EVENTS: Final = "('opened', 'closed')"
_MOST: Final = 10**14 - 1
"""The greatest number that a field may hold: longer than any time and larger than any object; sums cannot overflow."""


def lines(logs: DataFrame) -> DataFrame:
    """Lines about the end of an attempt (`outcome` is not null) and about circuit breakers (`event` is not null).

    `job_id, resource_id, ms, outcome, host, code, breaker, event, duration_ms, size, open_ms`. Fields are text that
    anybody may have written: a number that is none, or out of range, is null.
    """
    raw = logs.selectExpr(
        "coalesce(job_id, '') as job_id",
        "coalesce(resource_id, '') as resource_id",
        "timestamp_ms as ms",
        *(f"fields['{name}'] as {name}" for name in (*_TEXTS, *_NUMBERS)),
    )
    wanted = raw.where(f"outcome in {_OUTCOMES} or event in {_EVENTS} and breaker <> ''")
    # In steps, since Spark would otherwise look up and read a number as often as it is mentioned.
    told = wanted.withColumns({name: expr(f"try_cast({name} as bigint)") for name in _NUMBERS})
    return told.selectExpr(
        *("job_id", "resource_id", "ms"),
        f"if(outcome in {_OUTCOMES}, outcome, null) as outcome",
        "coalesce(host, '') as host",
        "coalesce(code, '') as code",
        "breaker",
        f"if(event in {_EVENTS} and breaker <> '', event, null) as event",
        *(f"if({name} between 0 and {_MOST}, {name}, null) as {name}" for name in _NUMBERS),
    )
