"""Days are compacted by Spark in a real object store: the same rows as before, each once, and nobody is harmed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from pyspark.sql import SparkSession

from cli.embedded.seaweed import SeaweedFS
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus, QueuedTask
from kernel.objects import ObjectStoreError
from pipeline.lake.compaction import OTHERS, Compaction
from pipeline.retention.deed import DeedOutcome
from pipeline.retention.run import Retention
from pipeline.retention.verdicts import RetentionPlan
from pipeline.spark.lake import read
from pipeline.tables import DLQ, LOGS, STATUS, TABLES, TASKS, Table
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.pipeline.lake_rig import Lake
from tests.pipeline.retention_clock import StandingClock, at

TODAY = datetime.now(UTC).date()
DAY = TODAY - timedelta(days=3)
"""Closed, and kept by every table."""


def _now() -> StandingClock:
    return StandingClock(datetime.now(UTC))


def _retained(
    config: Config, spark: SparkSession, clock: StandingClock | None = None
) -> tuple[RetentionPlan, DeedOutcome]:
    with Retention(config, clock or _now()) as retention:
        plan = retention.plan()
        outcome = retention.run(plan, lambda: spark)
        if clock is None:
            assert retention.plan().empty
        return plan, outcome


def _rows(spark: SparkSession, config: Config, table: Table, day: date = DAY) -> list[dict[str, Any]]:
    found = read(spark, config, table, (day, day)).toArrow().to_pylist()
    return sorted(found, key=lambda row: (row["entry_partition"], row["entry_id"]))


def _files(lake: Lake, table: Table, generation: int = 1) -> dict[str, list[dict[str, Any]]]:
    """The rows of a compaction by class, in their order; each file is as its commit says."""
    key = lake.layout.compaction(table.name, DAY, generation)
    commit = Compaction.from_json(lake.client.get_object(Bucket=lake.bucket, Key=key)["Body"].read())
    found: dict[str, list[dict[str, Any]]] = {}
    for file in commit.files:
        rows = lake.read(file.key)
        assert rows.num_rows == file.rows
        found.setdefault(file.tenant, []).extend(rows.to_pylist())
    assert commit.rows == sum(len(rows) for rows in found.values())
    return found


def _override(config: Config, tenant: str, **days: int) -> None:
    for table, kept in days.items():
        getattr(config.lake.tenants[tenant], table).CopyFrom(Duration(seconds=kept * 86_400))


def _task(n: int, tenant: str = "") -> DownloadTask:
    task = DownloadTask(job_id=f"job-{n}", resource_id="r", url=f"https://example.org/{n}", tenant=tenant)
    task.headers.add(name="accept", value="*/*")
    task.attributes.tags["n"] = str(n)
    task.attributes.extra = bytes([n])
    return task


def test_a_day_is_the_same_afterwards(spark: SparkSession, config: Config, lake: Lake) -> None:
    """Whatever a column holds, and in the order of ids, though they are no numbers."""
    ids = [(at(DAY, n), _task(n)) for n in range(3)]
    lake.write(TASKS, [(at(DAY, 5), _task(9))] * 12)  # `…-9` and `…-10`
    lake.write(TASKS, ids, partition=1)
    before = _rows(spark, config, TASKS)
    _, outcome = _retained(config, spark)
    assert outcome.rows == len(before) == 15
    assert _rows(spark, config, TASKS) == before
    rows = _files(lake, TASKS)[OTHERS]
    assert [row["entry_id"] for row in rows if row["entry_partition"] == 0] == [f"{at(DAY, 5)}-{n}" for n in range(12)]
    assert _retained(config, spark)[1].compacted == []


@pytest.mark.long
def test_what_was_exported_twice_is_there_once(spark: SparkSession, config: Config, lake: Lake) -> None:
    entries = [(at(DAY, hour), _task(hour)) for hour in range(4)]
    lake.write(TASKS, entries)
    lake.write(TASKS, entries[2:], epoch=2)
    before = _rows(spark, config, TASKS)
    _retained(config, spark)
    assert [row["job_id"] for row in _files(lake, TASKS)[OTHERS]] == [f"job-{n}" for n in range(4)]
    lake.write(TASKS, [(at(DAY, 5), _task(5))], epoch=2)
    _, outcome = _retained(config, spark)
    assert len(outcome.compacted) == 1
    assert [row["job_id"] for row in _files(lake, TASKS, 2)[OTHERS]] == [f"job-{n}" for n in (0, 1, 2, 3, 5)]
    assert _rows(spark, config, TASKS)[:4] == before


@pytest.mark.long
def test_tenants_have_files_of_their_own(spark: SparkSession, config: Config, lake: Lake) -> None:
    """Also in logs, whose rows do not say whose they are; a tenant whose time is over has none."""
    for table in TABLES:
        _override(config, "long", **{table.name: 60})
        _override(config, "short", **{table.name: 1})
    jobs = {1: "long", 2: "short", 3: "other", 4: "long", 5: "long"}
    lake.write(STATUS, [(at(DAY - timedelta(days=4)), JobStatus(job_id="job-1", tenant="long"))])
    lake.write(STATUS, [(at(DAY, 1), JobStatus(job_id=f"job-{n}", tenant=jobs[n])) for n in (2, 3)])
    lake.write(TASKS, [(at(DAY, 1), _task(4, "long"))])
    letters = [
        DeadLetterTask(id="a", task=_task(5, "long")),
        DeadLetterTask(id="b", queued_task=QueuedTask(job_id="job-7", tenant="short")),
        DeadLetterTask(id="c", undecodable=b"?"),
    ]
    lake.write(DLQ, [(at(DAY, 1), letter) for letter in letters])
    lake.write(LOGS, [(at(DAY, 2), JobLog(job_id=f"job-{n}", message="x")) for n in (*jobs, 6)])
    _retained(config, spark)
    logs = _files(lake, LOGS)
    assert {tenant: [row["job_id"] for row in rows] for tenant, rows in logs.items()} == {
        "long": ["job-1", "job-4", "job-5"],
        OTHERS: ["job-3", "job-6"],
    }
    dead = {tenant: [row["id"] for row in rows] for tenant, rows in _files(lake, DLQ).items()}
    assert dead == {"long": ["a"], OTHERS: ["c"]}
    assert {row["job_id"] for row in _rows(spark, config, STATUS)} == {"job-3"}
    # What said whose the jobs are goes earlier; the lines are still theirs when the day is compacted again.
    for table in (STATUS, TASKS, DLQ):
        for key in (*lake.keys(f"raw/{table.name}/"), *lake.keys(f"compact/{table.name}/")):
            lake.client.delete_object(Bucket=lake.bucket, Key=key)
    lake.write(LOGS, [(at(DAY, 3), JobLog(job_id=f"job-{n}", message="late")) for n in (1, 3)])
    _retained(config, spark)
    assert {tenant: [row["job_id"] for row in rows] for tenant, rows in _files(lake, LOGS, 2).items()} == {
        "long": ["job-1", "job-4", "job-5", "job-1"],
        OTHERS: ["job-3", "job-6", "job-3"],
    }


@pytest.mark.long
def test_a_tenant_that_gets_its_own_retention_later(spark: SparkSession, config: Config, lake: Lake) -> None:
    lake.write(TASKS, [(at(DAY, 1), _task(1, "acme")), (at(DAY, 2), _task(2))])
    _retained(config, spark)
    _override(config, "acme", tasks=1)
    plan, _ = _retained(config, spark)
    assert [one.generation for one in plan.compactions] == [2]
    assert [row["job_id"] for row in _rows(spark, config, TASKS)] == ["job-2"]


def test_rows_that_go_in_the_same_run_still_say_whose_log_lines_are(
    spark: SparkSession, config: Config, lake: Lake
) -> None:
    config.lake.status.retention.CopyFrom(Duration(seconds=86_400))
    _override(config, "long", logs=60)
    lake.write(STATUS, [(at(DAY, 1), JobStatus(job_id="job-1", tenant="long"))])
    lake.write(LOGS, [(at(DAY, 2), JobLog(job_id="job-1", message="x"))])
    _, outcome = _retained(config, spark)
    assert len(outcome.retired) == 1
    assert list(_files(lake, LOGS)) == ["long"]


def test_two_at_once(spark: SparkSession, config: Config, lake: Lake) -> None:
    """One compaction counts; what the other has written is gone."""
    lake.write(TASKS, [(at(DAY, hour), _task(hour)) for hour in range(4)])
    together = threading.Barrier(2)

    def one() -> DeedOutcome:
        with Retention(config, _now()) as retention:
            plan = retention.plan()
            together.wait(60)
            return retention.run(plan, lambda: spark)

    with ThreadPoolExecutor(2) as threads:
        outcomes = [done.result() for done in [threads.submit(one), threads.submit(one)]]
    assert sorted(len(outcome.compacted) for outcome in outcomes) == [0, 1]
    assert sorted(len(outcome.outrun) for outcome in outcomes) == [0, 1]
    assert len([key for key in lake.keys("compact") if key.endswith(".parquet")]) == 1
    assert len(_rows(spark, config, TASKS)) == 4


def test_a_missing_segment_fails_its_day_alone(spark: SparkSession, config: Config, lake: Lake) -> None:
    [gone] = lake.write(TASKS, [(at(DAY, 1), _task(1))])
    lake.write(STATUS, [(at(DAY, 1), JobStatus(job_id="job-1"))])
    with Retention(config, _now()) as retention:
        plan = retention.plan()
        lake.client.delete_object(Bucket=lake.bucket, Key=gone)
        outcome = retention.run(plan, lambda: spark)
    assert not outcome.well
    assert len(outcome.failed) == 1
    assert [key for key in outcome.compacted if "/status/" in key]
    assert lake.keys("compact/tasks") == []


@pytest.mark.long
def test_exporter_and_reader_go_on(spark: SparkSession, config: Config, lake: Lake) -> None:
    """Segments come while a day is compacted, and a reader that planned before it reads what it planned."""
    lake.write(TASKS, [(at(DAY, 1, n), _task(n)) for n in range(5)])
    planned = read(spark, config, TASKS, (DAY, TODAY))
    exporting, done = threading.Event(), threading.Event()

    def export() -> int:
        count = 0
        while count < 3 or (count < 8 and not done.is_set()):
            lake.write(TASKS, [(at(DAY, 2 + count // 60, count % 60), _task(count))], partition=1)
            lake.write(TASKS, [(at(TODAY, 0, count % 60), _task(count))], partition=2)
            count += 1
            exporting.set()
            done.wait(0.2)
        return count

    with ThreadPoolExecutor(1) as threads:
        exported = threads.submit(export)
        assert exporting.wait(60)
        with Retention(config, _now()) as retention:
            outcome = retention.run(retention.plan(), lambda: spark)
        done.set()
        count = exported.result()
    assert outcome.well
    assert planned.count() == 5
    assert read(spark, config, TASKS, (DAY, TODAY)).count() == 5 + 2 * count
    later = _now()
    later.at += timedelta(hours=25)
    _retained(config, spark, later)
    assert read(spark, config, TASKS, (DAY, TODAY)).count() == 5 + 2 * count


@pytest.mark.parametrize("cut", [".parquet", ".json"])
async def test_interrupted_and_run_again(
    spark: SparkSession, config: Config, lake: Lake, s3: SeaweedFS, cut: str
) -> None:
    """While the files are written, or before the commit: nothing counts yet, and what was left is collected."""
    lake.write(TASKS, [(at(DAY, hour), _task(hour)) for hour in range(4)])
    before = await asyncio.to_thread(_rows, spark, config, TASKS)
    async with FlakyS3(s3.endpoint) as proxy:
        broken = Config()
        broken.CopyFrom(config)
        broken.object_store.endpoint, broken.object_store.put_attempts = proxy.endpoint, 1
        proxy.faults = lambda method, target: (
            "503" if method == "PUT" and "/compact/" in target and cut in target else None
        )
        assert not await asyncio.to_thread(_broken, broken, spark)
    assert await asyncio.to_thread(_rows, spark, config, TASKS) == before
    await asyncio.to_thread(_retained, config, spark)
    assert await asyncio.to_thread(_rows, spark, config, TASKS) == before
    later = _now()
    later.at += timedelta(hours=25)
    await asyncio.to_thread(_retained, config, spark, later)
    assert await asyncio.to_thread(_rows, spark, config, TASKS) == before
    assert len([key for key in lake.keys("compact") if key.endswith(".parquet")]) == 1


def _broken(config: Config, spark: SparkSession) -> bool:
    """Whether a run did all, while the store does not."""
    try:
        return _retained(config, spark, _now())[1].well
    except ObjectStoreError:
        return False
