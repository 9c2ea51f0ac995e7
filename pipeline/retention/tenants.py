"""Whose rows are whose: the class of tenants that each row of a table belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pipeline.lake.compaction import OTHERS
from pipeline.tables import DLQ, LOGS, STATUS, TASKS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLASS: Final = "_class"
"""The column that is added; no message has a field of that name."""
_OWNER: Final = "_owner"
NAMING: Final = (STATUS, TASKS, DLQ)
"""The tables that say whose a job is."""


def needed(table: Table) -> tuple[str, ...]:
    """The columns that say whose a row is."""
    if table is DLQ:
        return ("task", "queued_task")
    return ("job_id",) if table is LOGS else ("job_id", "tenant") if table in {TASKS, STATUS} else ("tenant",)


def classified(rows: DataFrame, table: Table, tenants: Sequence[str], owned: Callable[[], DataFrame]) -> DataFrame:
    """The rows with the column `CLASS`: their tenant where it is one of `tenants`, else `OTHERS`.

    A log line has no tenant: it is that of its job, which is in what `owned` gives (`owners`).
    """
    if table is LOGS:
        rows = rows.join(owned(), "job_id", "left")
        tenant = F.col(_OWNER)
    else:
        tenant = _tenant(table)
    own = F.when(tenant.isin(*tenants), tenant).otherwise(F.lit(OTHERS))
    return rows.withColumn(CLASS, own).drop(_OWNER)


def owners(tenants: Sequence[str], naming: Mapping[Table, DataFrame], apart: Mapping[str, DataFrame]) -> DataFrame:
    """One row for each job that one of the tenants has; where two have it, the first by name.

    `naming` are rows of tables that name tenants, with at least their columns `needed`. `apart` are rows, with their
    `job_id`, that are known to be a tenant's: those tables may be kept for a shorter time than what is told by them.
    """
    found = [
        *(rows.select(_job(table).alias("job_id"), _tenant(table).alias(_OWNER)) for table, rows in naming.items()),
        *(rows.select("job_id", F.lit(tenant).alias(_OWNER)) for tenant, rows in apart.items()),
    ]
    whole = reduce(lambda one, other: one.unionAll(other), found)
    return whole.where(F.col(_OWNER).isin(*tenants)).groupBy("job_id").agg(F.min(_OWNER).alias(_OWNER))


def _job(table: Table) -> Column:
    return _part("job_id") if table is DLQ else F.col("job_id")


def _tenant(table: Table) -> Column:
    return _part("tenant") if table is DLQ else F.col("tenant")


def _part(name: str) -> Column:
    """A field of the task of a dead letter, of whichever kind it is."""
    return F.coalesce(*(F.nullif(F.col(kind)[name], F.lit("")) for kind in ("task", "queued_task")))
