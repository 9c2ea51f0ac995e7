"""Circuit breakers: when they opened, and for how long."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.functions import broadcast, expr, lead

from pipeline.reports.days import Days


def breakers_daily(lines: DataFrame, days: Days) -> DataFrame:
    """`BREAKERS_DAILY` of lines, of all days that are known: one may have opened long before the period."""
    told = lines.where("event is not null").select("breaker", "event", "ms", "open_ms")
    every = _opened(told, days).unionByName(_open(told, days)).unionByName(_left_open(told, days))
    return every.groupBy("day", "breaker").agg(
        expr("sum(opened) as opened"), expr("sum(open_ms) as open_ms"), expr("sum(open_at_end) as open_at_end")
    )


def of_hosts(breakers: DataFrame, attempts: DataFrame) -> DataFrame:
    """Those rows that are about hosts of the attempts: a tenant is not told where others go."""
    hosts = attempts.where("host <> ''").selectExpr("concat('host:', host) as breaker").distinct()
    return breakers.join(hosts, "breaker", "left_semi")


def _opened(told: DataFrame, days: Days) -> DataFrame:
    known = told.where("event = 'opened'").selectExpr(f"{days.day_sql('ms')} as day", "breaker")
    return known.where("day is not null").selectExpr(
        "day", "breaker", "1L as opened", "0L as open_ms", "0L as open_at_end"
    )


def _open(told: DataFrame, days: Days) -> DataFrame:
    """Each time that one was open, cut where days end."""
    spans = _spans(told.sparkSession, days)
    closed = told.where("event = 'closed' and open_ms > 0").selectExpr(
        "breaker", "ms - open_ms as from_ms", "ms as to_ms"
    )
    parts = closed.join(broadcast(spans), expr("from_ms < end_ms and to_ms > begin_ms"))
    return parts.selectExpr(
        *("day", "breaker", "0L as opened"),
        "least(to_ms, end_ms) - greatest(from_ms, begin_ms) as open_ms",
        "0L as open_at_end",
    )


def _left_open(told: DataFrame, days: Days) -> DataFrame:
    """The days at whose end one was open: from that of an opening until the next day on which something is told."""
    # What was told last on a day; of two things at once that it closed, which cannot come first.
    by_day = told.where(f"ms < {days.end_ms}").selectExpr(
        "breaker",
        f"case when ms < {days.begin_ms} then date'0001-01-01' else {days.day_sql('ms')} end as since",
        "named_struct('ms', ms, 'closed', event = 'closed') as latest",
    )
    latest = by_day.groupBy("breaker", "since").agg(expr("max(latest) as latest"))
    following = lead("since").over(Window.partitionBy("breaker").orderBy("since"))
    opened = latest.withColumn("until", following).where("not latest.closed")
    spans = _spans(told.sparkSession, days).where(f"begin_ms < {days.end_ms}").select("day").distinct()
    parts = opened.join(broadcast(spans), expr("day >= since and (until is null or day < until)"))
    return parts.selectExpr("day", "breaker", "0L as opened", "0L as open_ms", "1L as open_at_end")


def _spans(spark: SparkSession, days: Days) -> DataFrame:
    rows = [(span.day, span.begin_ms, span.end_ms) for span in days.spans]
    return spark.createDataFrame(rows, "day date, begin_ms bigint, end_ms bigint")
