"""The columns of the lake: from the descriptors, the same for Arrow, Parquet and Spark."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from fetchbox.operator.v1.job_pb2 import Job
from pipeline.lake.segments import encode
from pipeline.schema.columns import ENTRY, TIMELINE, arrow_schema, message_schema, spark_schema
from pipeline.tables import DLQ, FLOWS, LOGS, STATUS, TABLES, TASKS

UTC_MICROS = pa.timestamp("us", "UTC")


def types_in(kind: pa.DataType) -> list[pa.DataType]:
    """A type and all in it."""
    return [kind, *(found for index in range(kind.num_fields) for found in types_in(kind.field(index).type))]


@pytest.mark.req("R000-goal.01")
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_has_the_columns_of_its_entries_and_of_its_message(table):
    names = [field.name for field in (*ENTRY, *TIMELINE)] if table is FLOWS else [field.name for field in ENTRY]
    assert arrow_schema(table).names == [*names, *(field.name for field in table.message.DESCRIPTOR.fields)]
    assert len(set(arrow_schema(table).names)) == len(arrow_schema(table).names)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_type_is_one_that_spark_has_and_every_column_may_be_null(table):
    schema = arrow_schema(table)
    assert all(field.nullable for field in schema)
    found = {kind for field in schema for kind in types_in(field.type)}
    assert not [kind for kind in found if pa.types.is_unsigned_integer(kind)]
    assert [kind for kind in found if pa.types.is_timestamp(kind)] == [UTC_MICROS]
    assert spark_schema(table) == from_arrow_schema(schema)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_segment_has_the_columns_of_its_table_for_those_who_do_not_know_them(table):
    written = encode(arrow_schema(table).empty_table(), {"first": "1-0"})
    assert pq.read_schema(BytesIO(written)).remove_metadata() == arrow_schema(table)


def test_fields_become_columns_by_their_types():
    assert arrow_schema(STATUS).field("state").type == pa.string()
    assert arrow_schema(STATUS).field("log_offset").type == pa.int64()
    assert arrow_schema(STATUS).field("resources_total").type == pa.int64()
    assert arrow_schema(LOGS).field("fields").type == pa.map_(pa.string(), pa.string())
    assert arrow_schema(TASKS).field("headers").type.value_type.field("value").type == pa.string()
    assert arrow_schema(DLQ).field("undecodable").type == pa.binary()
    assert arrow_schema(DLQ).field("task").type == pa.struct(message_schema(TASKS.message.DESCRIPTOR))
    assert arrow_schema(FLOWS).field("data").type == arrow_schema(FLOWS).field("meta").type == pa.string()
    assert arrow_schema(FLOWS).field("v").type == pa.int32()
    assert message_schema(Job.DESCRIPTOR).field("created_at").type == UTC_MICROS
