"""The lake as frames: a table's rows of some days, and everything as views for SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectStore
from pipeline.export.ledger import LEDGER
from pipeline.lake.store import LakeStore
from pipeline.schema.columns import arrow_schema, spark_struct
from pipeline.spark import s3a
from pipeline.spark.reading import File, ReadPlan, bins, key_columns, look, look_at_ledger
from pipeline.tables import BY_NAME, TABLES, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

SOURCES: Final = ("auto", "datasource", "s3a")
"""How objects are read: by Python (`fetchbox_lake`), by Hadoop, or by Hadoop where it can."""
Days = tuple[date, date]
"""First and last, both inclusive: of ingest, in UTC."""
ALWAYS: Final[Days] = (date.min, date.max)
LEDGER_VIEW: Final = "ledger"
SCHEMAS: Final = {**{table.name: arrow_schema(table) for table in TABLES}, LEDGER_VIEW: LEDGER}
"""The views by name, and their columns."""
EVERYTHING: Final[Mapping[str, Collection[str]]] = {name: schema.names for name, schema in SCHEMAS.items()}

_TASK_BYTES: Final = 64 << 20
"""Of compressed Parquet, for one task at the most."""
_TASKS_PER_CORE: Final = 2


def read(
    spark: SparkSession,
    config: Config,
    table: Table,
    days: Days,
    *,
    columns: Sequence[str] = (),
    source: str = "auto",
) -> DataFrame:
    """The rows of a table that were taken in on these days, each entry once; only `columns` where they are named.

    What is read is settled now: what is exported later is not in it. Not within a running loop (`look` and `planned`
    are for that). ObjectStoreError, LakeFileError; errors of single files come when the frame is computed.
    """
    plan = _looked(config, lambda store: look(store, table, days))
    return planned(spark, config, table, plan, columns=columns, source=source)


def planned(
    spark: SparkSession,
    config: Config,
    table: Table,
    plan: ReadPlan,
    *,
    columns: Sequence[str] = (),
    source: str = "auto",
) -> DataFrame:
    """The rows of a plan, each entry once. ValueError for a column that the table does not have."""
    whole = arrow_schema(table)
    names = tuple(columns) or tuple(whole.names)
    if unknown := set(names) - set(whole.names):
        raise ValueError(f"{table.name} has no column {min(unknown)}")
    key = key_columns(table)
    found = []
    if plan.single:
        found.append(files(spark, config, _only(whole, names), plan.single, source=source))
    if plan.doubtful:
        known = _only(whole, (*names, *(name for name in key if name not in names)))
        found.append(files(spark, config, known, plan.doubtful, source=source).dropDuplicates(list(key)).select(*names))
    if not found:
        return spark.createDataFrame([], spark_struct(_only(whole, names)))
    return reduce(lambda one, other: one.unionAll(other), found)


def files(
    spark: SparkSession, config: Config, schema: pa.Schema, wanted: Collection[File], *, source: str = "auto"
) -> DataFrame:
    """The rows of single files, at least one, with the columns of `schema`."""
    from pipeline.spark.source import frame  # noqa: PLC0415  # its classes are those of an extra

    bucket = config.lake.bucket or config.object_store.bucket
    if source == "s3a" or (source == "auto" and s3a.available(spark)):
        s3a.configure(spark, config.object_store)
        return s3a.frame(spark, spark_struct(schema), (f"s3a://{bucket}/{file.key}" for file in wanted))
    tasks = spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
    size = min(_TASK_BYTES, -(-sum(file.size for file in wanted) // tasks))
    return frame(spark, config.object_store, bucket, schema, bins(wanted, size))


def views(
    spark: SparkSession,
    config: Config,
    days: Days = ALWAYS,
    *,
    columns: Mapping[str, Collection[str]] = EVERYTHING,
    source: str = "auto",
) -> None:
    """Registers temporary views of the rows of these days, and of the newest snapshot of the ledger.

    `columns` are by the name of the view; of each only these are read, and the others are there, but null.
    """

    async def all_of(store: LakeStore) -> list[ReadPlan]:
        return [
            await (look_at_ledger(store) if name == LEDGER_VIEW else look(store, BY_NAME[name], days))
            for name in columns
        ]

    for (name, wanted), plan in zip(columns.items(), _looked(config, all_of), strict=True):
        read_ones = [column for column in SCHEMAS[name].names if column in wanted]
        if name == LEDGER_VIEW:
            frame = _of_ledger(spark, config, plan, read_ones, source)
        else:
            frame = planned(spark, config, BY_NAME[name], plan, columns=read_ones, source=source)
        _widened(frame, SCHEMAS[name]).createOrReplaceTempView(name)


def _of_ledger(spark: SparkSession, config: Config, plan: ReadPlan, columns: Sequence[str], source: str) -> DataFrame:
    schema = _only(LEDGER, columns)
    if not plan.files:
        return spark.createDataFrame([], spark_struct(schema))
    return files(spark, config, schema, plan.files, source=source)


def _widened(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The frame with all columns of a schema; those that it does not have are null."""
    from pyspark.sql import functions  # noqa: PLC0415  # of an extra

    present = set(frame.columns)
    nothing = functions.lit(None)
    columns = [
        functions.col(field.name) if field.name in present else nothing.cast(field.dataType).alias(field.name)
        for field in spark_struct(schema)
    ]
    return frame.select(*columns)


def _looked(config: Config, asked: Callable[[LakeStore], Awaitable[T]]) -> T:
    async def run() -> T:
        objects = ObjectStore(config.object_store)
        try:
            return await asked(LakeStore(objects, config))
        finally:
            await objects.close()

    return asyncio.run(run())


def _only(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
