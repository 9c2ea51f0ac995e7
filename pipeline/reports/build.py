"""A report from the tables of the lake.

The four tables are read once each. What is kept of them is small: a row for each job and dead letter, and of each log
line a few columns. These are counted into tallies, whose size depends on days, job types and hosts, no longer on how
much was done, and tables of the report come from the tallies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

from pipeline.reports import breakers, failures, flows, hosts, jobs, letters
from pipeline.reports.days import Days
from pipeline.reports.lines import lines
from pipeline.reports.report import Hole, Period, Report
from pipeline.reports.tables import REPORT_TABLES

LOOKBACK_DAYS: Final = 7
"""Ingest days before the period that are to be read, too: of jobs that began before it, and of breakers that opened."""
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "status": (
        *("job_id", "job_type", "state", "resources_completed", "resources_failed", "tenant", "last_error_code"),
        *("timestamp_ms", "revision", "resources_total", "log_offset"),
    ),
    "logs": ("job_id", "resource_id", "fields", "timestamp_ms"),
    "dlq": ("entry_partition", "entry_id", "task", "failure_code", "failed_at_ms", "id", "queued_task"),
    "flows": ("entry_time", "flow_id", "flow_name", "tenant", "kind"),
}
"""What a report reads: the tables of the lake, and of each the columns."""

_FEW_JOBS: Final = 1_000_000
"""Of so many, the ids and owners fit into the memory of every process: about 150 MB."""


@contextmanager
def build(inputs: Mapping[str, DataFrame], days: Days, tenant: str = "") -> Iterator[dict[str, DataFrame]]:
    """The tables of a report by name, in the order of `REPORT_TABLES`; what they share is kept until the exit.

    `inputs` are tables of the lake by name (`COLUMNS`), without duplicates of entries. They should begin
    `LOOKBACK_DAYS` before the period and end now, since what happened on a day may be told later. `tenant`: the only
    one that the report tells of; empty for all.
    """
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist())
        return frame

    try:
        yield _tables(inputs, days, tenant, keep)
    finally:
        for frame in kept:
            frame.unpersist()


def collect(
    inputs: Mapping[str, DataFrame],
    days: Days,
    tenant: str = "",
    told: Callable[[str], None] = lambda _name: None,
) -> dict[str, pa.Table]:
    """The same as Arrow tables, each sorted by its columns that are no figures. `told` hears what comes next."""
    tables = {}
    with build(inputs, days, tenant) as frames:
        for name, frame in frames.items():
            told(name)
            tables[name] = _arrow(frame, REPORT_TABLES[name])
    return tables


def report(
    inputs: Mapping[str, DataFrame],
    period: Period,
    created: datetime,
    *,
    tenant: str = "",
    holes: Sequence[Hole] = (),
    told: Callable[[str], None] = lambda _name: None,
) -> Report:
    """The report of a period, made at `created`: what is to come then is not told of."""
    days = Days.of(period, round(created.timestamp() * 1000))
    return Report(period, created, collect(inputs, days, tenant, told), tenant, holes)


def _tables(
    inputs: Mapping[str, DataFrame], days: Days, tenant: str, keep: Callable[[DataFrame], DataFrame]
) -> dict[str, DataFrame]:
    every_job = jobs.jobs(inputs["status"])
    known_jobs = keep(every_job.where(every_job.tenant == tenant) if tenant else every_job)
    # Lines that are not sorted cost half. Joins are planned when a frame is kept, so the number has to be known before.
    owners = broadcast(known_jobs) if known_jobs.count() <= _FEW_JOBS else known_jobs
    known_lines = keep(lines(inputs["logs"]))
    known_letters = keep(letters.letters(inputs["dlq"], days, tenant))
    job_tally = keep(jobs.tally(jobs.timed(known_jobs, known_lines), days))
    attempts = keep(hosts.attempts(known_lines, owners, days, tenant))
    run_tally = keep(flows.tally(flows.runs(inputs["flows"]), days, tenant))
    broken = breakers.breakers_daily(known_lines, days)
    latency = jobs.latency(job_tally).unionByName(hosts.latency(attempts)).unionByName(flows.latency(run_tally))
    tables = {
        "jobs_daily": jobs.jobs_daily(job_tally, days),
        "hosts_daily": hosts.hosts_daily(attempts),
        "failures_daily": failures.failures_daily(known_letters, attempts),
        "hosts": hosts.hosts(attempts),
        "dead_letters": letters.dead_letters(known_letters, known_lines, days),
        "breakers_daily": breakers.of_hosts(broken, attempts) if tenant else broken,
        "flows_daily": flows.flows_daily(run_tally),
        "latency": latency,
    }
    return {name: frame.select(*REPORT_TABLES[name].names) for name, frame in tables.items()}


def _arrow(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    table = frame.toArrow().cast(schema)
    keys = [field.name for field in schema if field.type in {pa.date32(), pa.string(), pa.int32()}]
    return table.sort_by([(name, "ascending") for name in keys])
