"""The plain way from a stream into Parquet, as a process of its own: `python -m benchmarks.export_peer JSON`.

`XRANGE` by redis-py, `FromString`, `MessageToDict`, `Table.from_pylist`, zstd Parquet, put: columns are what JSON makes
of a message, nothing is redacted, checked or counted, and it must not be interrupted. Segments have the same limits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import redis
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from obstore.store import S3Store

from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus

_PAGE: Final = 5000
_KINDS: Final = {"tasks": DownloadTask, "status": JobStatus, "logs": JobLog, "dlq": DeadLetterTask}

Entry = tuple[bytes, dict[bytes, bytes]]


def _segments(server: redis.Redis, stream: str, max_rows: int, max_bytes: int) -> Iterator[list[Entry]]:
    """The entries of a stream, as many at a time as a segment takes."""
    gathered: list[Entry] = []
    size, last = 0, b"0-0"
    while page := server.xrange(stream, min=b"(" + last, count=_PAGE):
        for entry in page:
            size += sum(len(name) + len(value) for name, value in entry[1].items())
            gathered.append(entry)
            if len(gathered) >= max_rows or size >= max_bytes:
                yield gathered
                gathered, size = [], 0
        last = page[-1][0]
    if gathered:
        yield gathered


def _row(kind: type[Message], partition: int, entry: Entry) -> dict[str, Any]:
    name, fields = entry
    message = kind.FromString(fields[b"payload"])
    row = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    hint = row.get("task", row).get("storage_hint")
    if hint is not None and not hint["metadata"]:
        del hint["metadata"]  # Parquet has no structs without members
    place = {"entry_partition": partition, "entry_id": name.decode(), "traceparent": fields[b"traceparent"].decode()}
    return place | row


def main() -> None:
    """Everything that is there; the count of rows goes to stdout."""
    given = json.loads(sys.argv[1])
    server = redis.Redis(port=given["redis_port"])
    store = S3Store(**given["store"], client_options={"allow_http": True})
    rows = 0
    for name, partition, stream in given["streams"]:
        kind = _KINDS[name]
        for number, entries in enumerate(_segments(server, stream, given["max_rows"], given["max_bytes"])):
            sink = BytesIO()
            table = pa.Table.from_pylist([_row(kind, partition, entry) for entry in entries])
            pq.write_table(table, sink, compression="zstd")
            obstore.put(store, f"{given['prefix']}{name}/{partition}/{number:06}.parquet", sink.getvalue())
            rows += table.num_rows
    print(json.dumps({"exported": rows}))


if __name__ == "__main__":
    main()
