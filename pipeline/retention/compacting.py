"""A closed day becomes a few sorted files, each entry once: by Spark, which writes the objects by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from fetchbox.config.v1.config_pb2 import Config
from kernel.ids import uuid7
from kernel.objects import ObjectInfo
from pipeline.lake.compaction import OTHERS, CompactFile
from pipeline.lake.layout import Layout
from pipeline.retention.tenants import CLASS, NAMING, classified, needed, owners
from pipeline.retention.verdicts import Compacting
from pipeline.retention.writing import FILE_BYTES, TOLD, Writer
from pipeline.schema.columns import arrow_schema
from pipeline.spark.lake import files, read
from pipeline.spark.reading import File, key_columns
from pipeline.tables import BY_NAME, LOGS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_JOBS_LAST_DAYS: Final = 14
"""So long before a log line its job may have had its first row."""
_PARTS: Final = (("_ms", "substring_index(entry_id, '-', 1)"), ("_seq", "substring_index(entry_id, '-', -1)"))


class CompactionError(RuntimeError):
    """The files of a compaction do not hold the rows that they should; nothing was changed."""


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """The files of one compaction, which count for nobody yet."""

    folder: str
    """What their keys begin with."""
    files: tuple[CompactFile, ...]
    left_out: int
    """Rows of classes whose time is over."""


@dataclass(frozen=True, slots=True)
class Compactor:
    """Compacts days within one session of Spark. Not within a running event loop."""

    spark: SparkSession
    config: Config

    def write(self, compacting: Compacting) -> WrittenSegment:
        """Writes the files. What Spark raises comes as it is; CompactionError where rows are missing or too many."""
        table = BY_NAME[compacting.table]
        commit = Layout(self.config.lake.prefix).compaction(table.name, compacting.day, compacting.generation)
        folder = f"{commit.removesuffix('.json')}/{uuid7()}/"
        expected = self._expected(table, compacting)
        writer = Writer(
            self.config.object_store.SerializeToString(deterministic=True), self._bucket, folder, table.name
        )
        rows = self._rows(table, compacting, arrow_schema(table))
        if compacting.ended:
            rows = rows.where(~F.col(CLASS).isin(*compacting.ended))
        told = _sorted(rows, table, compacting.bytes).mapInArrow(writer.write, TOLD).collect()
        written = tuple(sorted((CompactFile(**row.asDict()) for row in told), key=lambda file: file.key))
        _check(written, expected, compacting)
        return WrittenSegment(folder, written, sum(expected[tenant] for tenant in compacting.ended))

    @property
    def _bucket(self) -> str:
        return self.config.lake.bucket or self.config.object_store.bucket

    def _expected(self, table: Table, compacting: Compacting) -> Counter[str]:
        """How many rows each class has, counted by itself."""
        whole = arrow_schema(table)
        names = dict.fromkeys((*key_columns(table), *(needed(table) if compacting.tenants else ())))
        counted = self._rows(table, compacting, pa.schema([whole.field(name) for name in names]))
        return Counter({row[CLASS]: row["count"] for row in counted.groupBy(CLASS).count().collect()})

    def _rows(self, table: Table, compacting: Compacting, columns: pa.Schema) -> DataFrame:
        """The rows of the inputs, each entry once, with their class."""
        rows = self._read(columns, compacting.inputs).dropDuplicates(list(key_columns(table)))
        if not compacting.tenants:
            return rows.withColumn(CLASS, F.lit(OTHERS))
        return classified(rows, table, compacting.tenants, lambda: self._owners(compacting))

    def _owners(self, compacting: Compacting) -> DataFrame:
        """Whose the jobs of a day are: what other tables say now, and what they said to former compactions."""
        apart: dict[str, list[ObjectInfo]] = {}
        for file in compacting.files:
            if file.tenant in compacting.tenants:
                apart.setdefault(file.tenant, []).append(file.info)
        days = (compacting.day - timedelta(days=_JOBS_LAST_DAYS), compacting.day + timedelta(days=1))
        job = pa.schema([arrow_schema(LOGS).field("job_id")])
        return owners(
            compacting.tenants,
            {table: read(self.spark, self.config, table, days, columns=needed(table)) for table in NAMING},
            {tenant: self._read(job, infos) for tenant, infos in apart.items()},
        )

    def _read(self, columns: pa.Schema, infos: Iterable[ObjectInfo]) -> DataFrame:
        return files(self.spark, self.config, columns, [File(info.key, info.size) for info in infos])


def _sorted(rows: DataFrame, table: Table, size: int) -> DataFrame:
    """In the order of classes and ids, in as many parts as there are files at least."""
    for name, part in _PARTS:
        rows = rows.withColumn(name, F.expr(f"try_cast({part} as decimal(20, 0))"))
    order = [CLASS, key_columns(table)[0], *(name for name, _ in _PARTS)]
    parts = -(-size // FILE_BYTES)
    rows = rows.repartitionByRange(parts, *order) if parts > 1 else rows.coalesce(1)
    return rows.sortWithinPartitions(*order).drop(*(name for name, _ in _PARTS))


def _check(written: Sequence[CompactFile], expected: Counter[str], compacting: Compacting) -> None:
    found: Counter[str] = Counter()
    for file in written:
        found[file.tenant] += file.rows
    wanted = Counter({tenant: rows for tenant, rows in expected.items() if tenant not in compacting.ended})
    if found != wanted:
        raise CompactionError(
            f"compaction of {compacting.table}, {compacting.day}: {found.total()} rows were written, "
            f"{wanted.total()} were read"
        )
