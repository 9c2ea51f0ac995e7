"""Jobs: from the entries of their states to what happened on each day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from pipeline.reports.days import Days
from pipeline.reports.histogram import array_sql, bucket_sql, edges_sql, entries_sql, quantiles_sql

_STATES: Final = ("QUEUED", "IN_PROGRESS", "PARTIAL", "COMPLETED", "FAILED")
_ORDER: Final = array_sql(f"JOB_STATE_{name}" for name in _STATES)
_ENTRY: Final = (
    "named_struct('revision', coalesce(revision, 0L), 'ms', coalesce(timestamp_ms, 0L),"
    f" 'rank', coalesce(array_position({_ORDER}, state), 0L),"
    " 'completed', coalesce(resources_completed, 0L), 'failed', coalesce(resources_failed, 0L),"
    " 'code', coalesce(last_error_code, ''), 'tenant', coalesce(tenant, ''), 'job_type', coalesce(job_type, ''))"
)
"""An entry, in the order of its age: the later of two is the greater one. What follows the state only settles ties."""
_OUTCOMES: Final = ("completed", "partial", "failed", "canceled")
_RESOURCES: Final = ("resources_completed", "resources_failed")
_OUTCOME: Final = (
    "case last.rank when 3 then 'partial' when 4 then 'completed'"
    " when 5 then if(last.code = 'SYSTEM_CANCELED', 'canceled', 'failed') end"
)


def jobs(status: DataFrame) -> DataFrame:
    """The table `status` as one row for each job.

    `job_id, tenant, job_type, queued_ms` (or the first that is known of it), `ended_ms`, `outcome` (both null where it
    has not ended), `resources_completed, resources_failed, wait_ms, run_ms` (null where a part is not known).
    """
    entries = status.where("job_id <> ''").select("job_id", "timestamp_ms", "state", expr(_ENTRY).alias("entry"))
    known = entries.groupBy("job_id").agg(
        expr("max(entry) as last"),
        expr("min(timestamp_ms) as first_ms"),
        expr("min(case when state = 'JOB_STATE_QUEUED' then timestamp_ms end) as queued_ms"),
        expr("min(case when state = 'JOB_STATE_IN_PROGRESS' then timestamp_ms end) as started_ms"),
    )
    return known.selectExpr(
        "job_id",
        "last.tenant as tenant",
        "last.job_type as job_type",
        "coalesce(queued_ms, first_ms) as queued_ms",
        "case when last.rank >= 3 then last.ms end as ended_ms",
        f"{_OUTCOME} as outcome",
        "last.completed as resources_completed",
        "last.failed as resources_failed",
        "case when started_ms < queued_ms then 0L else started_ms - queued_ms end as wait_ms",
        "case when last.rank < 3 then null when last.ms < started_ms then 0L else last.ms - started_ms end as run_ms",
    )


def tally(jobs: DataFrame, days: Days) -> DataFrame:
    """What happened to `jobs`, counted: few rows, whatever the number of jobs.

    `day, tenant, job_type, what, bucket, count` and `completed … resources_failed`. `what` is `submitted`; `ended`,
    where `bucket` is the minute; or `wait` and `run` of those that ended, with the bucket of their histograms.
    """
    ended = days.day_sql("ended_ms")
    parts = [
        _part(days.day_sql("queued_ms"), "submitted", "0"),
        _part(ended, "ended", f"if({ended} is null, null, cast(ended_ms div 60000 as int))"),
        _part(f"case when wait_ms is not null then {ended} end", "wait", bucket_sql("wait_ms")),
        _part(f"case when run_ms is not null then {ended} end", "run", bucket_sql("run_ms")),
    ]
    happened = jobs.select("tenant", "job_type", expr(f"inline(array({', '.join(parts)}))")).where("day is not null")
    sums = [expr(f"sum({name}) as {name}") for name in ("count", *_OUTCOMES, *_RESOURCES)]
    return happened.groupBy("day", "tenant", "job_type", "what", "bucket").agg(*sums)


def jobs_daily(tally: DataFrame, days: Days) -> DataFrame:
    """`JOBS_DAILY` of a tally of jobs."""
    sums = tally.groupBy("day", "tenant", "job_type").agg(
        expr("coalesce(sum(count) filter (where what = 'submitted'), 0L) as submitted"),
        expr("coalesce(sum(count) filter (where what = 'ended'), 0L) as ended"),
        *(expr(f"sum({name}) as {name}") for name in (*_OUTCOMES, *_RESOURCES)),
        expr("coalesce(max(count) filter (where what = 'ended'), 0L) as peak_per_minute"),
        expr(entries_sql("what = 'wait'")).alias("wait"),
        expr(entries_sql("what = 'run'")).alias("run"),
    )
    known = sums.withColumns(
        {
            "hours": expr(days.hours_sql("day")),
            "wait": expr(quantiles_sql("wait")),
            "run": expr(quantiles_sql("run")),
        }
    )
    return known.selectExpr(
        *("day", "tenant", "job_type", "submitted", "ended", *_OUTCOMES),
        "try_divide(cast(completed as double), completed + partial + failed) as success_rate",
        *_RESOURCES,
        *("hours", "ended / hours as jobs_per_hour", "peak_per_minute"),
        *edges_sql("wait", "wait"),
        *edges_sql("run", "run"),
    )


def latency(tally: DataFrame) -> DataFrame:
    """The part of `LATENCY` that jobs make."""
    return tally.where("what in ('wait', 'run')").selectExpr(
        "day", "tenant", "job_type", "'' as host", "what as metric", "bucket", "count"
    )


def _part(day: str, what: str, bucket: str) -> str:
    ended = what == "ended"
    outcomes = [f"'{name}', cast(outcome = '{name}' as bigint)" if ended else f"'{name}', 0L" for name in _OUTCOMES]
    resources = [f"'{name}', {name if ended else '0L'}" for name in _RESOURCES]
    fields = [f"'day', {day}", f"'what', '{what}'", f"'bucket', {bucket}", "'count', 1L", *outcomes, *resources]
    return f"named_struct({', '.join(fields)})"
