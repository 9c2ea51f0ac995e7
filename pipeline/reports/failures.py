"""What failed, by code."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr


def failures_daily(letters: DataFrame, attempts: DataFrame) -> DataFrame:
    """`FAILURES_DAILY`: of dead letters what failed for good, of counted attempts those that another followed."""
    group = ("day", "tenant", "job_type", "host", "code")
    lost = letters.selectExpr(*group, "1L as letters", "0L as retries")
    again = attempts.where("outcome = 'retry'").selectExpr(*group, "0L as letters", "count as retries")
    every = lost.unionByName(again).groupBy(*group)
    return every.agg(expr("sum(letters) as letters"), expr("sum(retries) as retries"))
