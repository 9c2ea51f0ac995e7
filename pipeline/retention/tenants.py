"""Whose rows are whose: the class of tenants that each row of a table belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pipeline.lake.compaction import OTHERS
from pipeline.tables import DLQ, LOGS, STATUS, TASKS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLASS: Final = "_class"
"""The column that is added; no message has a field of that name."""
_OWNER: Final = "_owner"
Owned = Callable[[Table], "DataFrame"]
"""Rows of a table, with at least its columns `needed`, of the days in which the jobs of a day may have rows."""


def needed(table: Table) -> tuple[str, ...]:
    """The columns that say whose a row is."""
    if table is DLQ:
        return ("task", "queued_task")
    return ("job_id",) if table is LOGS else ("job_id", "tenant") if table in {TASKS, STATUS} else ("tenant",)


def classified(rows: DataFrame, table: Table, tenants: Sequence[str], owned: Owned) -> DataFrame:
    """The rows with the column `CLASS`: their tenant where it is one of `tenants`, else `OTHERS`.

    A log line has no tenant: it is that of its job, as far as rows of other tables still name it.
    """
    if not tenants:
        return rows.withColumn(CLASS, F.lit(OTHERS))
    if table is LOGS:
        rows = rows.join(_owners(tenants, owned), "job_id", "left")
        tenant = F.col(_OWNER)
    else:
        tenant = _tenant(table)
    own = F.when(tenant.isin(*tenants), tenant).otherwise(F.lit(OTHERS))
    return rows.withColumn(CLASS, own).drop(_OWNER)


def _owners(tenants: Sequence[str], owned: Owned) -> DataFrame:
    """One row for each job that one of the tenants has; where two have it, the first by name."""
    found = None
    for table in (STATUS, TASKS, DLQ):
        job = _part("job_id") if table is DLQ else F.col("job_id")
        of_table = owned(table).select(job.alias("job_id"), _tenant(table).alias(_OWNER))
        found = of_table if found is None else found.unionAll(of_table)
    assert found is not None  # noqa: S101  # three tables
    return found.where(F.col(_OWNER).isin(*tenants)).groupBy("job_id").agg(F.min(_OWNER).alias(_OWNER))


def _tenant(table: Table) -> Column:
    return _part("tenant") if table is DLQ else F.col("tenant")


def _part(name: str) -> Column:
    """A field of the task of a dead letter, of whichever kind it is."""
    return F.coalesce(*(F.nullif(F.col(kind)[name], F.lit("")) for kind in ("task", "queued_task")))
