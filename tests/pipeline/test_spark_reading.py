"""Spark reads what is in the lake: each entry once, old files too, and never less than there is without a word."""

import json
import pickle
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.message import Message
from pyspark.sql import SparkSession

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobStatus
from pipeline.lake.errors import LakeFileError
from pipeline.lake.segments import encode
from pipeline.schema.columns import spark_schema
from pipeline.spark import s3a
from pipeline.spark.faults import ReadError, readable
from pipeline.spark.lake import read
from pipeline.spark.source import ParquetReader, rows
from pipeline.tables import DLQ, STATUS
from tests.pipeline.lake_rig import Lake

DAY = 86_400_000
DAYS = (date(1970, 1, 2), date(1970, 1, 3))
NOON = DAY + DAY // 2


def status(*jobs: str, at: int = NOON) -> Iterator[tuple[int, Message]]:
    return ((at + number, JobStatus(job_id=job, revision=number + 1)) for number, job in enumerate(jobs))


def jobs_of(spark: SparkSession, config: Config) -> list[str]:
    found = read(spark, config, STATUS, DAYS, columns=["job_id"]).toArrow()
    return sorted(found.column("job_id").to_pylist())


def test_rows_of_the_days_asked_for_have_the_columns_of_the_table(
    spark: SparkSession, config: Config, lake: Lake
) -> None:
    lake.write(STATUS, [*status("before", at=DAY - 2), *status("a", at=DAY), *status("b", at=3 * DAY - 1)])
    lake.write(STATUS, [*status("c", at=2 * DAY), *status("after", at=3 * DAY)], partition=3)
    frame = read(spark, config, STATUS, DAYS)
    assert frame.schema == spark_schema(STATUS)
    found = {row["job_id"]: row for row in frame.toArrow().to_pylist()}
    assert set(found) == {"a", "b", "c"}
    assert (found["c"]["entry_partition"], found["c"]["entry_id"]) == (3, f"{2 * DAY}-0")
    assert found["c"]["entry_time"].isoformat() == "1970-01-03T00:00:00+00:00"
    assert read(spark, config, DLQ, DAYS).count() == 0


def test_a_compaction_counts_and_what_it_replaces_does_not_even_if_it_comes_back(
    spark: SparkSession, config: Config, lake: Lake
) -> None:
    raw = lake.write(STATUS, status("a", "b"))
    lake.compact(STATUS, DAYS[0], lake.read(raw[0]), raw)
    lake.write(STATUS, status("late", at=NOON + DAY // 4))
    assert jobs_of(spark, config) == ["a", "b", "late"]
    lake.client.delete_object(Bucket=lake.bucket, Key=raw[0])
    assert jobs_of(spark, config) == ["a", "b", "late"]


def test_entries_that_two_epochs_hold_count_once_also_where_their_key_is_not_asked_for(
    spark: SparkSession, config: Config, lake: Lake
) -> None:
    lake.write(STATUS, status("a", "b"))
    lake.write(STATUS, status("a", "b", "c"), epoch=2)
    lake.write(STATUS, status("other"), partition=1)
    assert jobs_of(spark, config) == ["a", "b", "c", "other"]


def test_files_of_an_older_schema_have_nulls_also_within_messages(
    spark: SparkSession, config: Config, lake: Lake
) -> None:
    letter = DeadLetterTask(id="x", failure_code="HTTP_404", task=DownloadTask(job_id="j", attempt=2))
    (key,) = lake.write(DLQ, [(NOON, letter)])
    whole = lake.read(key)
    task = pa.array([{"job_id": "j"}], pa.struct([("job_id", pa.string())]))
    old = whole.drop_columns(["failure_code"]).set_column(whole.column_names.index("task"), "task", task)
    lake.put(key, encode(old, {}))
    (row,) = read(spark, config, DLQ, DAYS, columns=["id", "failure_code", "task"]).toArrow().to_pylist()
    assert (row["id"], row["failure_code"], row["task"]["job_id"], row["task"]["attempt"]) == ("x", None, "j", None)


def test_a_file_that_is_no_parquet_is_named(spark: SparkSession, config: Config, lake: Lake) -> None:
    (key,) = lake.write(STATUS, status("a"))
    lake.put(key, b"PAR1" + b"x" * 100 + b"PAR1")
    with pytest.raises(ReadError, match=f"{key} cannot be read as Parquet"), readable():
        jobs_of(spark, config)


def test_an_empty_file_is_named_before_anything_is_read(spark: SparkSession, config: Config, lake: Lake) -> None:
    (key,) = lake.write(STATUS, status("a"))
    lake.put(key, b"")
    with pytest.raises(LakeFileError, match=f"{key} is no Parquet file: it has 0 bytes"):
        read(spark, config, STATUS, DAYS)


def test_a_file_that_went_meanwhile_is_named(spark: SparkSession, config: Config, lake: Lake) -> None:
    (key,) = lake.write(STATUS, status("a"))
    frame = read(spark, config, STATUS, DAYS)
    lake.client.delete_object(Bucket=lake.bucket, Key=key)
    with pytest.raises(ReadError, match=f"{key} is gone"), readable():
        frame.count()


def test_a_column_that_the_table_does_not_have_is_named(spark: SparkSession, config: Config, lake: Lake) -> None:
    with pytest.raises(ValueError, match="status has no column jobid"):
        read(spark, config, STATUS, DAYS, columns=["jobid"])


def test_no_secret_is_in_plans_settings_or_the_list_of_processes(
    spark: SparkSession, config: Config, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.write(STATUS, status("a"))
    s3a.configure(spark, config.object_store)
    frame = read(spark, config, STATUS, DAYS)
    assert frame.count() == 1
    for mode in ("extended", "formatted", "cost"):
        frame.explain(mode)
    processes = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert "org.apache.spark.deploy.SparkSubmit" in processes
    told = capsys.readouterr().out + processes + str(spark.sparkContext.getConf().getAll()) + str(spark.conf.getAll)
    assert "fetchbox_lake" in told
    assert config.object_store.secret_access_key not in told
    assert config.object_store.access_key_id not in told


def test_hadoop_is_told_the_object_store_where_it_has_the_jars(spark: SparkSession, config: Config) -> None:
    assert not s3a.available(spark)  # the package has none, so `auto` is the Data Source in all these tests
    s3a.configure(spark, config.object_store)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.endpoint") == config.object_store.endpoint
    assert hadoop.get("fs.s3a.secret.key") == config.object_store.secret_access_key
    assert hadoop.get("fs.s3a.path.style.access") == "true"
    assert hadoop.get("fs.s3a.connection.ssl.enabled") == "false"


def test_the_reader_of_spark_and_the_data_source_see_the_same(
    spark: SparkSession, config: Config, lake: Lake, tmp_path: Path
) -> None:
    task = DownloadTask(job_id="j", attempt=1)
    task.url = "https://example.com/ä"
    task.headers.add(name="accept", value="*/*")
    task.attributes.tags["b"] = "2"
    lake.write(DLQ, [(NOON, DeadLetterTask(id="x", task=task, failed_at_ms=NOON))])
    lake.write(DLQ, [(NOON + 1, DeadLetterTask(id="y"))], partition=1)
    paths = []
    for number, key in enumerate(lake.keys("raw/dlq/")):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(lake.read(key), paths[-1], store_schema=False)
    by_spark = s3a.frame(spark, spark_schema(DLQ), [path.as_uri() for path in paths]).toArrow().to_pylist()
    by_us = read(spark, config, DLQ, DAYS).toArrow().to_pylist()
    assert len(by_us) == 2
    assert sorted(map(_text, by_us)) == sorted(map(_text, by_spark))


def test_rows_without_any_column_of_the_schema_are_still_counted() -> None:
    schema = pa.schema([("new", pa.string())])
    found = pa.Table.from_batches(rows("key", encode(pa.table({"old": [1, 2]}), {}), schema))
    assert found.to_pylist() == [{"new": None}, {"new": None}]


def test_a_large_file_is_read_a_few_rows_at_a_time() -> None:
    """What was compacted has ten times its size in memory, and each core of a worker reads one."""
    body = encode(pa.table({"n": range(150_000)}), {})
    found = list(rows("key", body, pa.schema([("n", pa.int64())])))
    assert max(batch.num_rows for batch in found) <= 20_000
    assert pa.Table.from_batches(found).column("n").to_pylist() == list(range(150_000))


def test_a_task_is_told_its_own_files_alone() -> None:
    """All keys of a long period would else go to each of its tasks."""
    reader = ParquetReader(b"", "bucket", pa.schema([("n", pa.int64())]), [[f"key-{n}"] for n in range(100)])
    assert len(reader.partitions()) == 100
    assert b"key-" not in pickle.dumps(reader)


def _text(row: dict[str, object]) -> str:
    return json.dumps(row, default=str, sort_keys=True)
