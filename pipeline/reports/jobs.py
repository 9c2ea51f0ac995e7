"""Jobs: from the entries of their states to what happened on each day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from kernel.log.offsets import SEQ_BITS
from pipeline.reports.days import Days
from pipeline.reports.histogram import array_sql, bucket_sql, edges_sql, entries_sql, quantiles_sql

_STATES: Final = ("QUEUED", "IN_PROGRESS", "PARTIAL", "COMPLETED", "FAILED")
_ORDER: Final = array_sql(f"JOB_STATE_{name}" for name in _STATES)
_ENTRY: Final = (
    "named_struct('revision', coalesce(revision, 0L), 'ms', coalesce(timestamp_ms, 0L),"
    f" 'rank', coalesce(array_position({_ORDER}, state), 0L),"
    " 'completed', coalesce(resources_completed, 0L), 'failed', coalesce(resources_failed, 0L),"
    " 'code', coalesce(last_error_code, ''), 'tenant', coalesce(tenant, ''), 'job_type', coalesce(job_type, ''),"
    " 'total', coalesce(resources_total, 0L))"
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

    `job_id, tenant, job_type, accepted_ms` (null where that is not known), `submitted_ms` (or else the first that is
    known of it), `started_ms` (the first `IN_PROGRESS`), `ended_ms`, `outcome` (both null where it has not ended),
    `resources_completed, resources_failed`, and `replayed_ms`: the end before the last one, null where it was not
    replayed. What began before it is of another life.
    """
    columns = ("job_id", "timestamp_ms", "state", "log_offset")
    entries = status.where("job_id <> ''").select(*columns, expr(_ENTRY).alias("entry"))
    known = entries.groupBy("job_id").agg(
        expr("max(entry) as last"),
        expr("min(timestamp_ms) as first_ms"),
        expr("min(case when state = 'JOB_STATE_QUEUED' then timestamp_ms end) as queued_ms"),
        expr("min(case when log_offset > 0 then log_offset end) as log_offset"),
        expr("collect_set(case when state = 'JOB_STATE_IN_PROGRESS' then timestamp_ms end) as starts"),
        expr("collect_set(case when entry.rank >= 3 then struct(entry.revision, entry.ms) end) as ends"),
    )
    former = "array_max(transform(filter(ends, e -> e.revision < last.revision), e -> e.ms))"
    # The status of a task job is published at its end; its logs begin with its creation.
    accepted = f"coalesce(queued_ms, case when last.total = 0 then shiftright(log_offset, {SEQ_BITS}) end)"
    lives = known.withColumns({"replayed_ms": expr(former), "accepted_ms": expr(accepted)})
    return lives.selectExpr(
        "job_id",
        "last.tenant as tenant",
        "last.job_type as job_type",
        "accepted_ms",
        "coalesce(accepted_ms, first_ms) as submitted_ms",
        "case when last.rank >= 3 then last.ms end as ended_ms",
        f"{_OUTCOME} as outcome",
        "last.completed as resources_completed",
        "last.failed as resources_failed",
        "array_min(filter(starts, ms -> ms > coalesce(replayed_ms, -1L))) as started_ms",
        "replayed_ms",
    )


def timed(jobs: DataFrame, lines: DataFrame) -> DataFrame:
    """Jobs with `wait_ms` and `run_ms`, null where a part is not known.

    A job began with its first attempt, which the line about that attempt's end tells: `IN_PROGRESS` may be told later,
    or never. How long one waited that was replayed is not known.
    """
    attempts = lines.where("outcome is not null and duration_ms is not null").join(
        jobs.select("job_id", "replayed_ms"), "job_id"
    )
    own = attempts.where("ms > coalesce(replayed_ms, -1L)")
    begun = own.groupBy("job_id").agg(expr("min(greatest(ms - duration_ms, 0L)) as begun_ms"))
    known = jobs.join(begun, "job_id", "left").withColumn("began_ms", expr("least(started_ms, begun_ms)"))
    return known.withColumns(
        {
            "wait_ms": expr(f"case when replayed_ms is null then {_between('accepted_ms', 'began_ms')} end"),
            "run_ms": expr(_between("began_ms", "ended_ms")),
        }
    )


def tally(jobs: DataFrame, days: Days) -> DataFrame:
    """What happened to `jobs`, counted: few rows, whatever the number of jobs.

    `day, tenant, job_type, what, bucket, count` and `completed … resources_failed`. `what` is `submitted`; `ended`,
    where `bucket` is the minute; or `wait` and `run` of those that ended, with the bucket of their histograms.
    """
    ended = days.day_sql("ended_ms")
    parts = [
        _part(days.day_sql("submitted_ms"), "submitted", "0"),
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


def _between(begin: str, end: str) -> str:
    return f"case when {end} < {begin} then 0L else {end} - {begin} end"


def _part(day: str, what: str, bucket: str) -> str:
    ended = what == "ended"
    outcomes = [f"'{name}', cast(outcome = '{name}' as bigint)" if ended else f"'{name}', 0L" for name in _OUTCOMES]
    resources = [f"'{name}', {name if ended else '0L'}" for name in _RESOURCES]
    fields = [f"'day', {day}", f"'what', '{what}'", f"'bucket', {bucket}", "'count', 1L", *outcomes, *resources]
    return f"named_struct({', '.join(fields)})"
