"""Questions in SQL about the lake.

A query is analysed twice. First the tables are empty: what is wrong with it is told before anything is read, and the
optimizer of Spark says which columns it needs. Then only those are read: the Python Data Source cannot leave out any
by itself, and most questions need few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fetchbox.config.v1.config_pb2 import Config
from pipeline.schema.columns import spark_struct
from pipeline.spark.faults import SparkFault, readable
from pipeline.spark.lake import ALWAYS, SCHEMAS, Days, views

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_VIEW_OF: Final = {tuple(schema.names): name for name, schema in SCHEMAS.items()}
"""Which view has these columns: no two have the same."""
_WORD: Final = re.compile(r"\w+")
_JAVA: Final = ("java_method", "reflect", "try_reflect")
"""Functions that call any method of Java."""


class QueryError(ValueError):
    """A query that Spark does not answer; the message is for who wrote it. `condition` is Spark's name for it."""

    def __init__(self, message: str, condition: str = "") -> None:
        super().__init__(message)
        self.condition = condition


def ask(
    spark: SparkSession, config: Config, query: str, days: Days = ALWAYS, *, source: str = "auto", limit: int = 0
) -> pa.Table:
    """The rows that answer a query about the tables of these ingest days; at most `limit`, unless that is 0.

    QueryError for what is no query or a wrong one, ReadError for files that cannot be read, ObjectStoreError and
    LakeFileError where the lake cannot be listed or a file in it is none.
    """
    text = query.strip().removesuffix(";")
    with _of_query():
        _only_queries(spark, text)
        columns = _needed(spark, text)
    views(spark, config, days, columns=columns, source=source)
    with _of_query():
        answer = spark.sql(text)
        found = (answer.limit(limit) if limit else answer).toArrow()
    return _in_zone(found, str(spark.conf.get("spark.sql.session.timeZone")))


def _in_zone(answer: pa.Table, zone: str) -> pa.Table:
    """The same moments, told by the clock of a time zone; within structures they stay in UTC, as they come."""
    import pyarrow as pa  # noqa: PLC0415  # of an extra

    fields = [
        field.with_type(pa.timestamp(field.type.unit, zone))
        if pa.types.is_timestamp(field.type) and field.type.tz
        else field
        for field in answer.schema
    ]
    return answer.cast(pa.schema(fields))


def _only_queries(spark: SparkSession, text: str) -> None:
    """QueryError for statements that do anything but answer."""
    from pyspark.errors import ParseException  # noqa: PLC0415  # of an extra

    state = spark._jsparkSession.sessionState()  # PySpark has no other way to its parser
    state.sqlParser().parsePlan(text)
    try:
        state.sqlParser().parseQuery(text)
    except ParseException as error:
        told = "this is no query: only SELECT, WITH, VALUES, TABLE and FROM are answered, and nothing is changed"
        raise QueryError(told, "READ_ONLY") from error
    java: Any = spark._jvm
    schema, catalog = (java.scala.Option.apply(name) for name in ("builtin", "system"))
    for name in _JAVA:
        function = java.org.apache.spark.sql.catalyst.FunctionIdentifier(name, schema, catalog)
        state.functionRegistry().dropFunction(function)


def _needed(spark: SparkSession, text: str) -> dict[str, set[str]]:
    """The columns that a query needs, of each view that it needs."""
    named = {word.lower() for word in _WORD.findall(text)}
    for name in SCHEMAS.keys() & named:
        nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), spark_struct(SCHEMAS[name]))
        nothing.createOrReplaceTempView(name)
    plan = spark.sql(text)._jdf.queryExecution().optimizedPlan()
    found: dict[str, set[str]] = {}
    for tree in (plan, *_each(plan.subqueriesAll())):
        for view, names in _scans(tree, None):
            # Of a table whose rows are only counted, any column will do.
            found.setdefault(view, set()).update(names or SCHEMAS[view].names[:1])
    return found


def _scans(plan: Any, wanted: set[int] | None) -> Iterator[tuple[str, set[str]]]:
    """Views that a plan reads, and of each the columns; `wanted` by those above it, None for all that there are."""
    kind = plan.nodeName()
    if kind.startswith("ScriptTransformation"):
        raise QueryError("TRANSFORM runs commands, and nothing but queries is run here", "READ_ONLY")
    columns = {attribute.exprId().id(): attribute.name() for attribute in _each(plan.output())}
    view = _VIEW_OF.get(tuple(columns.values()))
    children = list(_each(plan.children()))
    if view is not None and not children:
        yield view, {name for number, name in columns.items() if wanted is None or number in wanted}
    own = {attribute.exprId().id() for attribute in _each(plan.references().toSeq())}
    if kind == "Project":
        wanted = own
    elif kind == "Filter" and wanted is not None:
        wanted = wanted | own
    else:
        wanted = None
    for child in children:
        yield from _scans(child, wanted)


def _each(found: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (found.apply(index) for index in range(found.length()))


@contextmanager
def _of_query() -> Iterator[None]:
    """Faults of Spark are those of the query: it was asked nothing else."""
    try:
        with readable():
            yield
    except SparkFault as error:
        message = str(error)
        if error.condition == "TABLE_OR_VIEW_NOT_FOUND":
            known = ", ".join(SCHEMAS)
            message = f"there is no table {error.parameters.get('relationName', '')}: the lake has {known}"
        raise QueryError(message, error.condition) from error
