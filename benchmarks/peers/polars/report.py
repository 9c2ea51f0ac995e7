"""The tables of a report by polars' lazy frames: `python report.py LAKE OUTPUT`; see `benchmarks.report_engines`.

Days are those of Europe/Berlin in October 2026, as in `benchmarks.report_rows`. Quantiles are exact, then widened to
the edge of their bucket.
"""

import json
import resource
import sys
import time
from datetime import date
from pathlib import Path

BEGAN = time.perf_counter()

import polars as pl  # noqa: E402 - its loading is measured

ZONE = "Europe/Berlin"
FIRST, LAST = date(2026, 10, 1), date(2026, 10, 30)
GROUP = ("day", "tenant", "job_type")
STATES = ("JOB_STATE_QUEUED", "JOB_STATE_IN_PROGRESS", "JOB_STATE_PARTIAL", "JOB_STATE_COMPLETED", "JOB_STATE_FAILED")
QUANTILES = (50, 95, 99)


def day(ms: pl.Expr) -> pl.Expr:
    """The local day of a time."""
    return pl.from_epoch(ms, "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(ZONE).dt.date()


def bucket(ms: pl.Expr) -> pl.Expr:
    """The bucket of a time."""
    power = 63 - ms.bitwise_leading_zeros().cast(pl.Int64)
    above = (power - 2) * 8 + ms // pl.lit(2, pl.Int64).pow(pl.max_horizontal(power - 3, 0)) % 8
    return pl.when(ms < 8).then(ms).otherwise(above).cast(pl.Int32)


def edge(ms: pl.Expr) -> pl.Expr:
    """The upper edge of the bucket of a time."""
    power = 63 - ms.bitwise_leading_zeros().cast(pl.Int64)
    width = pl.lit(2, pl.Int64).pow(pl.max_horizontal(power - 3, 0))
    return (ms // width + 1) * width - 1


def quantiles(ms: str, name: str) -> list[pl.Expr]:
    """Exact ones of a group: the value that at least so many percent do not pass."""
    known = pl.col(ms).drop_nulls().sort()
    return [
        known.get((pl.col(ms).count() * percent + 99) // 100 - 1, null_on_oob=True).alias(f"{name}_p{percent}_ms")
        for percent in QUANTILES
    ]


def widened(name: str) -> list[pl.Expr]:
    """The columns that `quantiles` made, as a report has them."""
    return [edge(pl.col(f"{name}_p{percent}_ms")) for percent in QUANTILES]


def in_period(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of the days of the report."""
    return frame.filter(pl.col("day").is_between(FIRST, LAST))


def jobs(lake: Path) -> pl.LazyFrame:
    """A row for each job."""
    rank = pl.col("state").replace_strict(
        {name: at for at, name in enumerate(STATES, 1)}, default=0, return_dtype=pl.Int64
    )
    status = pl.scan_parquet(lake / "status" / "*.parquet").with_columns(rank=rank)
    last = pl.struct("revision", "timestamp_ms", "rank")
    newest = [pl.col(name).sort_by(last).last() for name in (*("tenant", "job_type", "rank", "last_error_code"),)]
    counts = [pl.col(name).sort_by(last).last() for name in ("resources_completed", "resources_failed")]
    times = [
        pl.col("timestamp_ms").filter(pl.col("rank") == 1).min().alias("queued"),
        pl.col("timestamp_ms").filter(pl.col("rank") == 2).min().alias("started"),
        pl.col("timestamp_ms").min().alias("first"),
        pl.col("timestamp_ms").sort_by(last).last().alias("ended"),
    ]
    spent = field("duration_ms").cast(pl.Int64)
    lines = pl.scan_parquet(lake / "logs" / "*.parquet").filter(field("outcome").is_not_null())
    begun = lines.group_by("job_id").agg(begun=(pl.col("timestamp_ms") - spent).min().clip(0))
    known = status.group_by("job_id").agg(*newest, *counts, *times).join(begun, on="job_id", how="left")
    known = known.with_columns(started=pl.min_horizontal("started", "begun"))
    ended = pl.when(pl.col("rank") >= 3).then("ended")
    return known.with_columns(
        ended=ended,
        wait=(pl.col("started") - pl.col("queued")).clip(0),
        run=(ended - pl.col("started")).clip(0),
        submit_day=day(pl.coalesce("queued", "first")),
        day=day(ended),
        canceled=(pl.col("rank") == 5) & (pl.col("last_error_code") == "SYSTEM_CANCELED"),
    )


def jobs_daily(known: pl.LazyFrame) -> pl.LazyFrame:
    """As the table of a report."""
    submitted = in_period(known.select("tenant", "job_type", day="submit_day")).group_by(GROUP).agg(submitted=pl.len())
    ends = in_period(known.filter(pl.col("ended").is_not_null()))
    peaks = ends.group_by(*GROUP, pl.col("ended") // 60_000).agg(count=pl.len()).group_by(GROUP)
    rank = pl.col("rank")
    sums = ends.group_by(GROUP).agg(
        *quantiles("wait", "wait"),
        *quantiles("run", "run"),
        ended=pl.len(),
        completed=(rank == 4).sum(),
        partial=(rank == 3).sum(),
        failed=((rank == 5) & ~pl.col("canceled")).sum(),
        canceled=pl.col("canceled").sum(),
        resources_completed=pl.col("resources_completed").sum(),
        resources_failed=pl.col("resources_failed").sum(),
    )
    joined = submitted.join(sums, on=GROUP, how="full", coalesce=True)
    joined = joined.join(peaks.agg(peak_per_minute=pl.col("count").max()), on=GROUP, how="left")
    zeros = ("submitted", "ended", "completed", "partial", "failed", "canceled", "resources_completed")
    filled = joined.with_columns(pl.col(*zeros, "resources_failed", "peak_per_minute").fill_null(0))
    counted = pl.sum_horizontal("completed", "partial", "failed").cast(pl.Int64)
    next_day = (pl.col("day") + pl.duration(days=1)).cast(pl.Datetime("ms")).dt.replace_time_zone(ZONE)
    hours = (
        next_day - pl.col("day").cast(pl.Datetime("ms")).dt.replace_time_zone(ZONE)
    ).dt.total_milliseconds() / 3.6e6
    return filled.with_columns(
        *widened("wait"),
        *widened("run"),
        success_rate=pl.when(counted > 0).then(pl.col("completed") / counted),
        hours=hours,
        jobs_per_hour=pl.col("ended") / hours,
    )


def field(name: str) -> pl.Expr:
    """A field of a log line."""
    return pl.col("fields").map.get(name)


def attempts(lake: Path, known: pl.LazyFrame) -> pl.LazyFrame:
    """A row for each attempt."""
    lines = pl.scan_parquet(lake / "logs" / "*.parquet")
    told = lines.select(
        "job_id",
        "resource_id",
        pl.col("timestamp_ms").alias("ms"),
        day(pl.col("timestamp_ms")),
        **{name: field(name) for name in ("outcome", "host", "code", "duration_ms", "size")},
    )
    return (
        told.filter(pl.col("outcome").is_in(["done", "failed", "retry"]))
        .rename({"timestamp_ms": "day"})
        .join(known.select("job_id", "tenant", "job_type"), on="job_id", how="left")
        .with_columns(
            pl.col("tenant", "host", "code").fill_null(""),
            pl.col("job_type").fill_null("unknown"),
            pl.col("duration_ms", "size").cast(pl.Int64, strict=False),
        )
    )


def host_sums() -> dict[str, pl.Expr]:
    """What both tables of hosts add up."""
    outcome = pl.col("outcome")
    return {
        "attempts": pl.len(),
        "stored": (outcome == "done").sum(),
        "failed": (outcome == "failed").sum(),
        "retries": (outcome == "retry").sum(),
        "bytes": pl.col("size").filter(outcome == "done").sum(),
        "busy": pl.col("duration_ms").filter(outcome == "done").sum(),
    }


def hosts_daily(tried: pl.LazyFrame) -> pl.LazyFrame:
    """As the table of a report."""
    sums = tried.group_by(*GROUP, "host").agg(*quantiles("duration_ms", "duration"), **host_sums())
    speed = pl.when(pl.col("busy") > 0).then(pl.col("bytes") * 1000 / pl.col("busy"))
    return sums.with_columns(*widened("duration"), bytes_per_second=speed).drop("busy")


def hosts(tried: pl.LazyFrame) -> pl.LazyFrame:
    """As the table of a report."""
    sums = tried.filter(pl.col("host") != "").group_by("host").agg(*quantiles("duration_ms", "duration"), **host_sums())
    rates = sums.with_columns(
        *widened("duration"), failure_rate=(pl.col("failed") + pl.col("retries")) / pl.col("attempts")
    ).drop("busy")
    slow = rates.sort("duration_p95_ms", "host", descending=[True, False], nulls_last=True).with_row_index("slowest", 1)
    return slow.sort("failure_rate", "failed", "host", descending=[True, True, False]).with_row_index("failing", 1)


def letters(lake: Path) -> pl.LazyFrame:
    """Each dead letter once."""
    told = pl.scan_parquet(lake / "dlq" / "*.parquet").select(
        "id", "failed_at_ms", day(pl.col("failed_at_ms")).alias("day"), code="failure_code", task="task"
    )
    task = pl.col("task").struct
    return (
        told.sort("id", "failed_at_ms")
        .unique("id", keep="first", maintain_order=True)
        .with_columns(
            tenant=task["tenant"],
            job_type=task["job_type"],
            job_id=task["job_id"],
            resource_id=task["resource_id"],
            host=task["url"].str.extract("^https?://([^/?#]*)"),
        )
    )


def failures_daily(lost: pl.LazyFrame, tried: pl.LazyFrame) -> pl.LazyFrame:
    """As the table of a report."""
    columns = (*GROUP, "host", "code")
    again = tried.filter(pl.col("outcome") == "retry").select(*columns, letters=pl.lit(0), retries=pl.lit(1))
    every = pl.concat([lost.select(*columns, letters=pl.lit(1), retries=pl.lit(0)), again])
    return every.group_by(columns).agg(pl.col("letters", "retries").cast(pl.Int64).sum())


def dead_letters(lost: pl.LazyFrame, tried: pl.LazyFrame) -> pl.LazyFrame:
    """As the table of a report."""
    end = pl.datetime(2026, 10, 31, time_zone=ZONE, time_unit="ms").dt.epoch("ms")
    key = ("job_id", "resource_id")
    stored = tried.filter(pl.col("outcome") == "done", pl.col("ms") < end).select(*key, "ms")
    later = pl.concat([stored.join(lost, on=key, how="semi"), lost.select(*key, ms="failed_at_ms")])
    newest = later.group_by(key).agg(newest=pl.col("ms").max())
    age = pl.when(pl.col("newest") <= pl.col("failed_at_ms")).then(end - pl.col("failed_at_ms"))
    judged = lost.join(newest, on=key, how="left").with_columns(age=age)
    middle = pl.col("age").drop_nulls().sort().get((pl.col("age").count() + 1) // 2 - 1, null_on_oob=True)
    return judged.group_by("tenant", "job_type", "code").agg(
        letters=pl.len(),
        unresolved=pl.col("age").count(),
        oldest_age_s=pl.col("age").max() / 1000,
        p50_age_s=middle / 1000,
    )


def latency(known: pl.LazyFrame, tried: pl.LazyFrame, lake: Path) -> pl.LazyFrame:
    """As the table of a report; flow runs are few, and in it."""
    ended = in_period(known)
    group = ("day", "tenant", "job_type")
    parts = [ended.select(*group, host=pl.lit(""), metric=pl.lit(name), ms=pl.col(name)) for name in ("wait", "run")]
    parts.append(tried.select(*group, "host", metric=pl.lit("attempt"), ms=pl.col("duration_ms")))
    parts.append(
        runs(lake).select("day", "tenant", job_type=pl.lit(""), host="flow_name", metric=pl.lit("flow"), ms="ms")
    )
    every = pl.concat(parts).filter(pl.col("ms").is_not_null())
    columns = (*group, "host", "metric")
    return every.group_by(*columns, bucket(pl.col("ms")).alias("bucket")).agg(count=pl.len())


def runs(lake: Path) -> pl.LazyFrame:
    """A row for each flow run."""
    events = pl.scan_parquet(lake / "flows" / "*.parquet").with_columns(at=pl.col("entry_time").dt.epoch("ms"))
    ended = pl.col("at").filter(pl.col("kind") != "flow.start").min()
    times = events.group_by("flow_id", "flow_name", "tenant").agg(
        ended=ended, ms=ended - pl.col("at").filter(pl.col("kind") == "flow.start").min()
    )
    return in_period(times.with_columns(day=day(pl.col("ended"))))


def report(lake: Path) -> dict[str, pl.DataFrame]:
    """The tables by name: jobs, attempts and letters are made once."""
    known, tried, lost = pl.collect_all(
        [(found := jobs(lake)), in_period(attempts(lake, found)), in_period(letters(lake))]
    )
    parts = known.lazy(), tried.lazy(), lost.lazy()
    tables = {
        "jobs_daily": jobs_daily(parts[0]),
        "hosts_daily": hosts_daily(parts[1]),
        "failures_daily": failures_daily(parts[2], parts[1]),
        "hosts": hosts(parts[1]),
        "dead_letters": dead_letters(parts[2], parts[1]),
        "latency": latency(parts[0], parts[1], lake),
    }
    return dict(zip(tables, pl.collect_all(list(tables.values())), strict=True))


def cpu() -> float:
    """Seconds of CPU so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """See the module."""
    lake, output = Path(sys.argv[1]), Path(sys.argv[2])
    told = {"start": time.perf_counter() - BEGAN, "start_cpu": cpu()}
    for name in ("first", "second"):
        began, used = time.perf_counter(), cpu()
        tables = report(lake)
        told |= {name: time.perf_counter() - began, f"{name}_cpu": cpu() - used}
    for name, table in tables.items():
        table.write_parquet(output / f"{name}.parquet")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(told | {"memory": memory}))


if __name__ == "__main__":
    main()
