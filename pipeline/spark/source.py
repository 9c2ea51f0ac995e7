"""The Python Data Source `fetchbox_lake`: Parquet files of the object store, read without any jar.

Whatever the workers have to know to read objects is within the class that is registered: Spark prints options into its
plans, and settings into the list of processes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from fetchbox.config.v1 import config_pb2
from kernel.objects import ObjectStore
from pipeline.lake.errors import LakeFileError
from pipeline.schema.columns import spark_struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "fetchbox_lake"
_AT_ONCE: Final = 4
"""Objects that are fetched at the same time; they are in memory together."""
_ROWS_OF_BATCH: Final = 20_000

_registered: dict[str, bytes] = {}
_registering: Final = Lock()


class ParquetReader(DataSourceReader):
    """Reads objects whole, one after the other. It is pickled into the task, configuration and all."""

    def __init__(self, store: bytes, bucket: str, schema: pa.Schema, groups: Sequence[Sequence[str]]) -> None:
        self._store = store
        self._bucket = bucket
        self._schema = schema
        self._groups = groups

    def __getstate__(self) -> dict[str, Any]:
        # Each task is told its own group: all keys of a long period would go to every one of them.
        return {**self.__dict__, "_groups": ()}

    def partitions(self) -> list[InputPartition]:
        """A task for each group of keys."""
        return [InputPartition(group) for group in self._groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's files. LakeFileError for a file that is gone or no Parquet."""
        with asyncio.Runner() as runner:
            for first in range(0, len(partition.value), _AT_ONCE):
                keys = partition.value[first : first + _AT_ONCE]
                bodies = runner.run(_bodies(self._store, self._bucket, keys))
                while bodies:
                    key, body = bodies.pop(0)
                    yield from rows(key, body, self._schema)


async def _bodies(store: bytes, bucket: str, keys: Sequence[str]) -> list[tuple[str, bytes]]:
    objects = ObjectStore(config_pb2.ObjectStore.FromString(store))
    try:
        bodies = await asyncio.gather(*(objects.get(bucket, key) for key in keys))
    finally:
        await objects.close()
    for key, body in zip(keys, bodies, strict=True):
        if body is None:
            raise LakeFileError(key, "is gone: retention has removed it, so run the query again")
    return [(key, body) for key, body in zip(keys, bodies, strict=True) if body is not None]


def rows(key: str, body: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the columns of `schema`; those that an older schema did not have are null.

    They come a few at a time: a file that was compacted has ten times its size in memory.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(body))
        present = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_OF_BATCH, columns=present):
            columns = [
                batch.column(field.name).cast(field.type) if field.name in present
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]  # fmt: skip
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise LakeFileError(key, f"cannot be read as Parquet: {error}") from error


class _Lake(DataSource):
    """`bucket`, `columns` and `groups` are its options, the latter two as `packed` makes them."""

    store: bytes

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_struct(self._columns())

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # it is that of the options
        groups: list[list[str]] = json.loads(zlib.decompress(base64.b64decode(self.options["groups"])))
        return ParquetReader(self.store, self.options["bucket"], self._columns(), groups)

    def _columns(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.options["columns"])))


def _bound(store_config: bytes) -> type[DataSource]:
    # A class made here is pickled with all that it holds; one of a module only by its name.
    class Bound(_Lake):
        store = store_config

    return Bound


def options(bucket: str, columns: pa.Schema, groups: Sequence[Sequence[str]]) -> Mapping[str, str]:
    """The options of a frame; there is no secret in them."""
    keys = base64.b64encode(zlib.compress(json.dumps(groups).encode()))
    schema = base64.b64encode(columns.serialize().to_pybytes())
    return {"bucket": bucket, "columns": schema.decode(), "groups": keys.decode()}


def frame(
    spark: SparkSession,
    store: config_pb2.ObjectStore,
    bucket: str,
    columns: pa.Schema,
    groups: Sequence[Sequence[str]],
) -> DataFrame:
    """The rows of the objects with the keys `groups`, a task for each group of them; at least one group."""
    known = str(spark.sparkContext.applicationId)
    told = store.SerializeToString(deterministic=True)
    with _registering:
        if _registered.get(known) != told:
            spark.dataSource.register(_bound(told))
            _registered[known] = told
        return spark.read.format(NAME).options(**options(bucket, columns, groups)).load()
