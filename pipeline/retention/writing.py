"""Rows of Spark as files of the lake: each task writes its own objects and tells what it wrote."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from fetchbox.config.v1 import config_pb2
from kernel.objects import ObjectStore
from pipeline.lake.compaction import CompactFile
from pipeline.lake.segments import CONTENT_TYPE
from pipeline.retention.tenants import CLASS
from pipeline.schema.columns import arrow_schema
from pipeline.tables import BY_NAME

TOLD: Final = "key string, tenant string, rows long, bytes long, sha256 string"
"""What a task tells of each file, as Spark's DDL: the fields of `CompactFile`."""
FILE_BYTES: Final = 128 << 20
"""A file that has so many is closed, and another one is begun."""
_ROWS_OF_GROUP: Final = 100_000


@dataclass(frozen=True)
class Writer:
    """Writes the rows of a task, which come class after class. It is pickled into the task."""

    store: bytes
    """The configuration of the object store, serialized."""
    bucket: str
    folder: str
    """What the keys of this attempt begin with, ending in a slash."""
    table: str
    file_bytes: int = FILE_BYTES

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row of `TOLD` for each file."""
        context = TaskContext.get()
        # A task that is tried again must not write under keys that its first try may still be writing.
        task = f"{context.partitionId():05d}-{context.attemptNumber():02d}" if context else "00000-00"
        schema = arrow_schema(BY_NAME[self.table])
        file: _File | None = None
        count = 0
        with asyncio.Runner() as runner:
            for tenant, rows in _runs(batches, schema):
                if file is not None and (file.tenant != tenant or file.size >= self.file_bytes):
                    yield runner.run(self._put(file))
                    file = None
                if file is None:
                    file = _File(f"{self.folder}{tenant}/{task}-{count:03d}.parquet", tenant, schema)
                    count += 1
                file.write(rows)
            if file is not None:
                yield runner.run(self._put(file))

    async def _put(self, file: _File) -> pa.RecordBatch:
        body = file.close()
        objects = ObjectStore(config_pb2.ObjectStore.FromString(self.store))
        try:
            await objects.put(self.bucket, file.key, body, content_type=CONTENT_TYPE)
        finally:
            await objects.close()
        told = CompactFile(file.key, file.tenant, file.rows, len(body), hashlib.sha256(body).hexdigest())
        return pa.RecordBatch.from_pylist([{name: getattr(told, name) for name in told.__dataclass_fields__}])


class _File:
    """A Parquet file in memory."""

    def __init__(self, key: str, tenant: str, schema: pa.Schema) -> None:
        self.key = key
        self.tenant = tenant
        self.rows = 0
        self._sink = BytesIO()
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", coerce_timestamps="us", store_schema=False
        )

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._sink.tell()

    def write(self, rows: pa.Table) -> None:
        """Rows behind those that are there."""
        self._writer.write_table(rows, row_group_size=_ROWS_OF_GROUP)
        self.rows += rows.num_rows

    def close(self) -> bytes:
        """The whole file."""
        self._writer.close()
        return self._sink.getvalue()


def _runs(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[tuple[str, pa.Table]]:
    """Rows of one class, as many as a group of rows has where there are so many; `CLASS` is not among them."""
    held: list[pa.Table] = []
    of = ""
    for batch in batches:
        classes = batch.column(CLASS)
        for tenant in pc.unique(classes).to_pylist():
            rows = _cast(batch.filter(pc.equal(classes, tenant)), schema)
            if held and (tenant != of or sum(one.num_rows for one in held) >= _ROWS_OF_GROUP):
                yield of, pa.concat_tables(held)
                held = []
            of = tenant
            held.append(rows)
    if held:
        yield of, pa.concat_tables(held)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    return pa.table([batch.column(field.name).cast(field.type) for field in schema], schema=schema)
