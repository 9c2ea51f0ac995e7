"""Attempts, and the hosts that they were made at."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import expr, row_number

from pipeline.reports.days import Days
from pipeline.reports.histogram import bucket_sql, edges_sql, entries_sql, quantiles_sql

_SUMS: Final = (
    "sum(count) as attempts",
    "coalesce(sum(count) filter (where outcome = 'done'), 0L) as stored",
    "coalesce(sum(count) filter (where outcome = 'failed'), 0L) as failed",
    "coalesce(sum(count) filter (where outcome = 'retry'), 0L) as retries",
    "sum(bytes) as bytes",
    "sum(busy_ms) as busy_ms",
)


def attempts(lines: DataFrame, jobs: DataFrame, days: Days, tenant: str = "") -> DataFrame:
    """The attempts of a period, counted: `day, tenant, job_type, host, outcome, code, bucket, count, bytes, busy_ms`.

    `bucket` is that of their duration, null where it is not known; `bytes` and `busy_ms` are of those that stored their
    resource. `jobs` say whose they are. `tenant`: the only one that counts; empty for all.
    """
    told = lines.where("outcome is not null").selectExpr(
        *("job_id", "host", "outcome", "code", f"{days.day_sql('ms')} as day"),
        f"{bucket_sql('duration_ms')} as bucket",
        "case when outcome = 'done' then size end as size",
        "case when outcome = 'done' then duration_ms end as busy_ms",
    )
    owners = jobs.select("job_id", "tenant", "job_type")
    known = told.where("day is not null").join(owners, "job_id", "inner" if tenant else "left")
    groups = known.groupBy(
        "day",
        expr("coalesce(tenant, '') as tenant"),
        expr("coalesce(job_type, 'unknown') as job_type"),
        *("host", "outcome", "code", "bucket"),
    )
    return groups.agg(
        expr("count(*) as count"),
        expr("coalesce(sum(size), 0L) as bytes"),
        expr("coalesce(sum(busy_ms), 0L) as busy_ms"),
    )


def hosts_daily(attempts: DataFrame) -> DataFrame:
    """`HOSTS_DAILY` of counted attempts."""
    sums = _summed(attempts, "day", "tenant", "job_type", "host")
    return sums.selectExpr(
        *("day", "tenant", "job_type", "host", "attempts", "stored", "failed", "retries", "bytes"),
        "try_divide(bytes * 1000D, busy_ms) as bytes_per_second",
        *edges_sql("durations", "duration"),
    )


def hosts(attempts: DataFrame) -> DataFrame:
    """`HOSTS` of counted attempts."""
    known = _summed(attempts.where("host <> ''"), "host").selectExpr(
        *("host", "attempts", "stored", "failed", "retries"),
        "cast(failed + retries as double) / attempts as failure_rate",
        "bytes",
        *edges_sql("durations", "duration"),
    )
    slowest = Window.orderBy(expr("duration_p95_ms").desc_nulls_last(), "host")
    failing = Window.orderBy(expr("failure_rate").desc(), expr("failed").desc(), "host")
    return known.withColumns(
        {
            "slowest": row_number().over(slowest).cast("bigint"),
            "failing": row_number().over(failing).cast("bigint"),
        }
    )


def latency(attempts: DataFrame) -> DataFrame:
    """The part of `LATENCY` that attempts make."""
    groups = attempts.where("bucket is not null").groupBy("day", "tenant", "job_type", "host", "bucket")
    counts = groups.agg(expr("sum(count) as count"))
    return counts.selectExpr("day", "tenant", "job_type", "host", "'attempt' as metric", "bucket", "count")


def _summed(attempts: DataFrame, *by: str) -> DataFrame:
    durations = expr(entries_sql("bucket is not null")).alias("durations")
    sums = attempts.groupBy(*by).agg(*(expr(text) for text in _SUMS), durations)
    return sums.withColumn("durations", expr(quantiles_sql("durations")))
