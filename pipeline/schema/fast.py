"""Rows from messages by ptars, which reads the bytes straight into columns.

Its answer counts only where it proves itself: what it has read is written out again, and a payload that does not come
back byte for byte is in doubt. That finds what it reads otherwise than protobuf does (broken tags, entries of maps with
more than key and value, times that do not fit and are cut down), and what it leaves out (unknown fields, numbers of
enums without a name, microseconds cut off). Keys that a map holds twice it keeps twice, so they are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from ptars import HandlerPool, PtarsConfig

from fetchbox.jobs.jobs_pb2 import DownloadTask, JobLog, JobStatus
from pipeline.schema.columns import TIMESTAMP, message_schema

_CONFIG: Final = PtarsConfig(timestamp_unit="us", enum_repr="string")
_PARTS: Final = {
    DownloadTask.DESCRIPTOR.full_name: (
        ("job_id", "job_type", "proxy_hint", "storage_hint", "manifest_key", "tenant", "trace_id", "resources_total"),
        ("headers",),
    ),
    JobLog.DESCRIPTOR.full_name: (("level", "message", "fields"),),
    JobStatus.DESCRIPTOR.full_name: (("job_type", "state", "tenant"),),
}
"""What our services write of a message once for many, before the rest (ingest_svc/tasks.py, kernel/queue)."""
_FIRST: Final = pa.scalar(-62_135_596_800_000_000, TIMESTAMP)
"""0001-01-01."""
_LAST: Final = pa.scalar(253_402_300_799_999_999, TIMESTAMP)
"""9999-12-31, its last microsecond."""


def decode(kind: type[Message], payloads: Sequence[bytes]) -> tuple[pa.Table, list[int]]:
    """A row for each payload, and the indices of those that are in doubt; ValueError where all of them are."""
    sent = pa.array(payloads, pa.binary())
    batch = _no_panic(_handler(kind.DESCRIPTOR).array_to_record_batch, sent)
    for column in batch.columns:
        _check(column)
    return pa.Table.from_batches([batch]).cast(message_schema(kind.DESCRIPTOR)), _doubtful(kind, sent, batch)


def _doubtful(kind: type[Message], sent: pa.Array, batch: pa.RecordBatch) -> list[int]:
    """The indices of the payloads that come back in no order that is known."""
    places = pa.array(range(len(sent)), pa.int64())
    for parts in _orders(kind.DESCRIPTOR):
        back = [_no_panic(_handler(kind.DESCRIPTOR).record_batch_to_array, batch.select(part)) for part in parts]
        other = pc.invert(pc.equal(sent, pc.binary_join_element_wise(*back, b"")))
        if not pc.any(other).as_py():
            return []
        places, sent, batch = places.filter(other), sent.filter(other), batch.filter(other)
    found: list[int] = places.to_pylist()
    return found


@cache
def _orders(message: Descriptor) -> list[list[list[str]]]:
    """The parts that messages of a kind are written in, one behind the other."""
    names = [field.name for field in message.fields]
    first = [list(part) for part in _PARTS.get(message.full_name, ())]
    rest = [name for name in names if not any(name in part for part in first)]
    return [[*first, rest], [names]] if first else [[names]]


def _no_panic(call: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return call(argument)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # that of Rust, which is no Exception and has no importable name
            raise
        raise ValueError(f"ptars has panicked: {error}") from None


@cache
def _handler(message: Descriptor) -> Any:
    return HandlerPool([message.file], config=_CONFIG).get_for_message(message)


def _check(column: pa.Array) -> None:
    """ValueError where a map holds a key twice, or a timestamp is none of protobuf's."""
    if pa.types.is_map(column.type):
        _check_keys(column)
        _check(column.items)
    elif pa.types.is_list(column.type):
        _check(column.values)
    elif pa.types.is_struct(column.type):
        for index in range(column.type.num_fields):
            _check(column.field(index))
    elif pa.types.is_timestamp(column.type):
        _check_times(column)


def _check_keys(column: pa.Array) -> None:
    codes = column.keys.dictionary_encode()
    maps = pc.list_parent_indices(pa.ListArray.from_arrays(column.offsets, column.keys))
    places = pc.add(pc.multiply(maps, len(codes.dictionary)), codes.indices)
    if pc.count_distinct(places).as_py() != len(places):
        raise ValueError("a map holds a key twice")


def _check_times(column: pa.Array) -> None:
    bounds = pc.min_max(column)
    if bounds["min"].is_valid and (pc.less(bounds["min"], _FIRST).as_py() or pc.greater(bounds["max"], _LAST).as_py()):
        raise ValueError("a timestamp is outside the years 1 to 9999")
