"""Flow runs: from the events of their timelines to what happened on each day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from pipeline.reports.days import Days
from pipeline.reports.histogram import array_sql, bucket_sql, edges_sql, entries_sql, quantiles_sql

_ENDS: Final = {"flow.complete": "completed", "flow.failed": "failed", "flow.cancelled": "cancelled"}
_RANK: Final = f"array_position({array_sql(_ENDS)}, kind)"
_OUTCOME: Final = f"element_at({array_sql(_ENDS.values())}, cast(ended.rank as int))"


def runs(flows: DataFrame) -> DataFrame:
    """The table `flows` as one row for each run: `flow_name, tenant, started_ms, ended_ms, outcome, run_ms`.

    A run ends once; were there more ends, the first would count.
    """
    events = flows.selectExpr(
        "flow_id",
        "coalesce(flow_name, '') as flow_name",
        "coalesce(tenant, '') as tenant",
        "case when kind = 'flow.start' then unix_millis(entry_time) end as started_ms",
        f"case when {_RANK} > 0 then named_struct('ms', unix_millis(entry_time), 'rank', {_RANK}) end as ended",
    )
    relevant = events.where("started_ms is not null or ended.ms is not null")
    known = relevant.groupBy("flow_id", "flow_name", "tenant").agg(
        expr("min(started_ms) as started_ms"), expr("min(ended) as ended")
    )
    return known.selectExpr(
        *("flow_name", "tenant", "started_ms", "ended.ms as ended_ms"),
        f"{_OUTCOME} as outcome",
        "case when ended.ms < started_ms then 0L else ended.ms - started_ms end as run_ms",
    )


def tally(runs: DataFrame, days: Days, tenant: str = "") -> DataFrame:
    """What happened to `runs`, counted: `day, flow_name, tenant, what, bucket, count`.

    `what` is `started`, an outcome, or `run` with the bucket of the histogram. `tenant`: the only one that counts;
    empty for all.
    """
    started, ended = days.day_sql("started_ms"), days.day_sql("ended_ms")
    parts = [
        f"named_struct('day', {started}, 'what', 'started', 'bucket', 0)",
        f"named_struct('day', {ended}, 'what', outcome, 'bucket', 0)",
        f"named_struct('day', if(run_ms is null, null, {ended}), 'what', 'run', 'bucket', {bucket_sql('run_ms')})",
    ]
    own = runs.where(runs.tenant == tenant) if tenant else runs
    happened = own.select("flow_name", "tenant", expr(f"inline(array({', '.join(parts)}))")).where("day is not null")
    return happened.groupBy("day", "flow_name", "tenant", "what", "bucket").agg(expr("count(*) as count"))


def flows_daily(tally: DataFrame) -> DataFrame:
    """`FLOWS_DAILY` of a tally of runs."""
    counts = [
        expr(f"coalesce(sum(count) filter (where what = '{what}'), 0L) as {what}")
        for what in ("started", *_ENDS.values())
    ]
    run = expr(entries_sql("what = 'run'")).alias("run")
    sums = tally.groupBy("day", "flow_name", "tenant").agg(*counts, run)
    known = sums.withColumn("run", expr(quantiles_sql("run")))
    return known.selectExpr("day", "flow_name", "tenant", "started", *_ENDS.values(), *edges_sql("run", "run"))


def latency(tally: DataFrame) -> DataFrame:
    """The part of `LATENCY` that runs make."""
    return tally.where("what = 'run'").selectExpr(
        "day", "tenant", "'' as job_type", "flow_name as host", "'flow' as metric", "bucket", "count"
    )
