"""The lines of the table `logs` that reports are made of."""

from __future__ import annotations

from pyspark.sql import DataFrame

_MOST = 10**14 - 1
"""The greatest number that a field may hold: longer than any time and larger than any object; sums cannot overflow."""


def lines(logs: DataFrame) -> DataFrame:
    """Lines about the end of an attempt (`outcome` is not null) and about circuit breakers (`event` is not null).

    `job_id, resource_id, ms, outcome, host, code, duration_ms, size, breaker, event, open_ms`. Fields are text that
    anybody may have written: a number that is none, or out of range, is null.
    """
    told = logs.selectExpr(
        "coalesce(job_id, '') as job_id",
        "coalesce(resource_id, '') as resource_id",
        "timestamp_ms as ms",
        "case when fields['outcome'] in ('done', 'failed', 'retry') then fields['outcome'] end as outcome",
        "coalesce(fields['host'], '') as host",
        "coalesce(fields['code'], '') as code",
        _number("duration_ms"),
        _number("size"),
        "fields['breaker'] as breaker",
        "if(fields['breaker'] <> '' and fields['event'] in ('opened', 'closed'), fields['event'], null) as event",
        _number("open_ms"),
    )
    return told.where("outcome is not null or event is not null")


def _number(field: str) -> str:
    number = f"try_cast(fields['{field}'] as bigint)"
    return f"case when {number} between 0 and {_MOST} then {number} end as {field}"
