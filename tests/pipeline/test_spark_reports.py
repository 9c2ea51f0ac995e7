"""Reports against DuckDB, cell by cell: random histories, wherever the process, the session and the report are."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from pipeline.reports import build
from pipeline.reports.days import Days
from pipeline.reports.jobs import jobs, timed
from pipeline.reports.report import Period
from pipeline.reports.tables import REPORT_TABLES
from pipeline.schema.columns import spark_schema, spark_struct
from pipeline.tables import BY_NAME, STATUS
from tests.examples import ALL
from tests.pipeline.report_histories import TENANTS, History, history
from tests.pipeline.report_oracle import answers, differences

PERIODS = (
    Period(date(2026, 3, 28), date(2026, 3, 30), "Europe/Berlin"),
    Period(date(2026, 10, 25), date(2026, 10, 25), "Europe/Berlin"),
    Period(date(2026, 10, 31), date(2026, 11, 2), "America/New_York"),
    Period(date(2026, 12, 31), date(2027, 1, 2), "Pacific/Kiritimati"),
    Period(date(2026, 2, 20), date(2026, 3, 5), "Asia/Kathmandu"),
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "period"),
    [("America/New_York", PERIODS[0]), ("Pacific/Kiritimati", PERIODS[1])],
    ids=["New York, 23 h", "Kiritimati, 25 h"],
)
def test_every_cell_is_what_duckdb_says_wherever_the_process_is(
    spark: SparkSession, tmp_path: Path, place: str, period: Period
) -> None:
    with standing_in(spark, place):
        assert _differences(spark, tmp_path, history(period, seed=7, jobs=400)) == []


@settings(
    max_examples=2 if ALL else 1,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example costs seconds, so failures stay as they are
    suppress_health_check=list(HealthCheck),
)
@given(
    st.sampled_from(PERIODS),
    st.integers(0, 2**32),
    st.integers(20, 500),
    st.sampled_from(["", *TENANTS]),
    st.none() | st.floats(0, 1),
)
def test_every_cell_is_what_duckdb_says(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    period: Period,
    seed: int,
    jobs: int,
    tenant: str,
    now: float | None,
) -> None:
    days = Days.of(period)
    now_ms = None if now is None else round(days.begin_ms + now * (days.end_ms - days.begin_ms))
    folder = tmp_path_factory.mktemp("history")
    assert _differences(spark, folder, history(period, seed, jobs), tenant, now_ms) == []


@pytest.mark.long
def test_nothing_makes_empty_tables_of_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    period = Period(date(2026, 11, 27), date(2026, 11, 27))
    heard: list[str] = []
    made = build.report(
        _read(spark, History(period, 0).write(tmp_path)),
        period,
        datetime(2026, 11, 28, tzinfo=UTC),
        tenant="acme",
        told=heard.append,
    )
    assert {name: table.schema for name, table in made.tables.items()} == REPORT_TABLES
    assert [table.num_rows for table in made.tables.values()] == [0] * len(REPORT_TABLES)
    assert heard == list(REPORT_TABLES)
    assert (made.period, made.tenant) == (period, "acme")


def test_what_a_report_keeps_is_let_go(spark: SparkSession, tmp_path: Path) -> None:
    period = Period(date(2026, 11, 27), date(2026, 11, 27))
    inputs = _read(spark, History(period, 0).write(tmp_path))
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    with build.build(inputs, Days.of(period)) as frames:
        for name, frame in frames.items():
            assertSchemaEqual(frame.schema, _types(REPORT_TABLES[name]), ignoreNullable=True)
        frames["hosts"].count()
        assert spark.sparkContext._jsc.getPersistentRDDs().size() > before
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_the_last_entry_of_a_job_is_the_one_of_the_highest_revision(spark: SparkSession) -> None:
    rows = [
        _status(revision=1, state="JOB_STATE_QUEUED", timestamp_ms=1000),
        _status(revision=3, state="JOB_STATE_COMPLETED", timestamp_ms=5000, resources_completed=2),
        _status(revision=2, state="JOB_STATE_IN_PROGRESS", timestamp_ms=9000),
        _status(revision=2, state="JOB_STATE_IN_PROGRESS", timestamp_ms=900),
        _status(job_id="canceled", state="JOB_STATE_FAILED", timestamp_ms=7, last_error_code="SYSTEM_CANCELED"),
        _status(job_id="running", state="JOB_STATE_IN_PROGRESS", timestamp_ms=8),
        _status(job_id="", state="JOB_STATE_COMPLETED", timestamp_ms=8),
        _status(job_id="replayed", revision=1, state="JOB_STATE_QUEUED", timestamp_ms=10),
        _status(job_id="replayed", revision=2, state="JOB_STATE_IN_PROGRESS", timestamp_ms=20),
        _status(job_id="replayed", revision=3, state="JOB_STATE_FAILED", timestamp_ms=30),
        _status(job_id="replayed", revision=4, state="JOB_STATE_IN_PROGRESS", timestamp_ms=9000),
        _status(job_id="replayed", revision=5, state="JOB_STATE_COMPLETED", timestamp_ms=9050),
        _status(job_id="task", revision=3, state="JOB_STATE_COMPLETED", timestamp_ms=700, log_offset=100 << 20),
        _status(job_id="late", revision=1, state="JOB_STATE_QUEUED", timestamp_ms=100),
        _status(job_id="late", revision=3, state="JOB_STATE_IN_PROGRESS", timestamp_ms=3100),
        _status(job_id="late", revision=4, state="JOB_STATE_COMPLETED", timestamp_ms=3200),
    ]
    told = [_line("task", 650, 50), _line("task", 700, 20), _line("late", 3090, 2980), _line("replayed", 29, 15)]
    schema = spark_schema(STATUS)
    status = spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
    expected = spark.createDataFrame(
        [
            ("job", "acme", "default", 1000, 5000, "completed", 2, 0, 0, 4100),
            ("canceled", "acme", "default", 7, 7, "canceled", 0, 0, None, None),
            ("running", "acme", "default", 8, None, None, 0, 0, None, None),
            ("replayed", "acme", "default", 10, 9050, "completed", 0, 0, None, 50),
            ("task", "acme", "default", 100, 700, "completed", 0, 0, 500, 100),
            ("late", "acme", "default", 100, 3200, "completed", 0, 0, 10, 3090),
        ],
        "job_id string, tenant string, job_type string, submitted_ms bigint, ended_ms bigint, outcome string,"
        "resources_completed bigint, resources_failed bigint, wait_ms bigint, run_ms bigint",
    )
    logs = spark.createDataFrame(told, "job_id string, ms bigint, outcome string, duration_ms bigint")
    assertDataFrameEqual(timed(jobs(status), logs).select(*expected.columns), expected, ignoreNullable=True)


def _line(job_id: str, ms: int, duration_ms: int) -> tuple[str, int, str, int]:
    return job_id, ms, "done", duration_ms


def _status(**values: Any) -> dict[str, Any]:
    return {"job_id": "job", "tenant": "acme", "job_type": "default", "revision": 0} | values


def _types(schema: pa.Schema) -> StructType:
    return StructType(
        [
            StructField(
                field.name, DateType() if field.type == pa.date32() else spark_struct(pa.schema([field]))[0].dataType
            )
            for field in schema
        ]
    )


@contextmanager
def standing_in(spark: SparkSession, zone: str) -> Iterator[None]:
    """Python, the JVM and the session have this time zone."""
    zones = spark.sparkContext._jvm.java.util.TimeZone
    before = os.environ.get("TZ"), zones.getDefault(), spark.conf.get("spark.sql.session.timeZone")
    _stand_in(spark, zone, zones.getTimeZone(zone), zone)
    try:
        assert time.localtime(0).tm_gmtoff == datetime.fromtimestamp(0).astimezone().utcoffset() / timedelta(seconds=1)
        yield
    finally:
        _stand_in(spark, *before)


def _stand_in(spark: SparkSession, variable: str | None, default: Any, session: str) -> None:
    if variable is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = variable
    time.tzset()
    spark.sparkContext._jvm.java.util.TimeZone.setDefault(default)
    spark.conf.set("spark.sql.session.timeZone", session)


def _read(spark: SparkSession, files: Mapping[str, Path]) -> dict[str, DataFrame]:
    """The columns that a report says it reads, and no others."""
    frames = {name: spark.read.schema(spark_schema(BY_NAME[name])).parquet(str(path)) for name, path in files.items()}
    return {name: frames[name].select(*columns) for name, columns in build.COLUMNS.items()}


def _differences(
    spark: SparkSession, folder: Path, told: History, tenant: str = "", now_ms: int | None = None
) -> list[str]:
    """The cells in which the report of a history is not what DuckDB says."""
    files = told.write(folder)
    theirs = answers(files, told.period, tenant, now_ms)
    ours = build.collect(_read(spark, files), Days.of(told.period, now_ms), tenant)
    assert {name: table.schema for name, table in ours.items()} == REPORT_TABLES
    return [found for name in REPORT_TABLES for found in differences(name, ours[name], theirs[name])]
