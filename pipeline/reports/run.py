"""A report from the lake: what is read for it, and from where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectStore
from pipeline.lake.store import LakeStore
from pipeline.reports.build import COLUMNS, LOOKBACK_DAYS, report
from pipeline.reports.holes import holes
from pipeline.reports.report import Hole, Period, Report
from pipeline.retention.policy import Policy
from pipeline.spark.lake import Days, read
from pipeline.tables import BY_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LAKE: Final = "lake"
SPARK: Final = "spark"
"""What `run` does before the tables of the report."""


def run(
    start: Callable[[], SparkSession],
    config: Config,
    period: Period,
    *,
    tenant: str = "",
    source: str = "auto",
    created: datetime | None = None,
    told: Callable[[str], None] = lambda _step: None,
) -> Report:
    """The report of a period, of all tenants or one, from the lake of the configuration.

    `start` gives the session, and is called once the lake was found: Spark takes its time. `source` is one of
    `pipeline.spark.lake.SOURCES`; `created` is now unless it is given; `told` hears what comes next.
    ObjectStoreError and LakeFileError where the lake cannot be read.
    """
    made = created or datetime.now(UTC)
    told(LAKE)
    missing = asyncio.run(_holes(config, period))
    days = ingest_days(period, made)
    told(SPARK)
    spark = start()
    inputs = {
        name: read(spark, config, BY_NAME[name], days, columns=columns, source=source)
        for name, columns in COLUMNS.items()
    }
    found = report(inputs, period, made, tenant=tenant, holes=missing, told=told)
    return replace(found, kept_from=kept_from(config, period, made, tenant))


def ingest_days(period: Period, now: datetime) -> Days:
    """The days in UTC on which entries about the period came: from some time before it until now."""
    # A day of a time zone begins up to 14 hours before that of UTC, and what is told late is of later days.
    first = period.first - timedelta(days=LOOKBACK_DAYS + 1)
    return first, max(period.last + timedelta(days=1), _day(now))


def kept_from(config: Config, period: Period, now: datetime, tenant: str = "") -> dict[str, date]:
    """The tables that retention may have taken days of the period from, and the first day that it leaves."""
    rules = Policy.of(config.lake).tables
    # A day is kept until its end is as old as the retention.
    first = {name: _day(now - timedelta(milliseconds=rules[name].of(tenant))) for name in COLUMNS}
    return {name: day for name, day in first.items() if day > period.first}


async def _holes(config: Config, period: Period) -> list[Hole]:
    objects = ObjectStore(config.object_store)
    try:
        return await holes(LakeStore(objects, config), period)
    finally:
        await objects.close()


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
