"""The results document: one JSON line a resource, and how the lines of several runs become one document."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
from google.protobuf.proto import parse_length_prefixed

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel import redaction
from kernel.errors import failure_name, http_status_of
from kernel.foreign_text import fit
from kernel.handlers import StoredObject

STORED = "stored"
FAILED = "failed"
CANCELED = "canceled"
UNKNOWN = "unknown"
"""The states of a line. `unknown`: settled by somebody who left no details."""

_EMPTY: dict[str, Any] = {
    "resource_id": "",
    "state": UNKNOWN,
    "key": "",
    "size": 0,
    "sha256": "",
    "content_type": "",
    "final_url": "",
    "http_status": 0,
    "attempts": 0,
    "error_code": "",
    "error_message": "",
}
_CANCELED_CODE = failure_name(errors_pb2.FAILURE_CODE_SYSTEM_CANCELED)


def order_of(packed: bytes) -> Iterator[str]:
    """The resource ids of the length-delimited tasks that ingest stored, in the order of the manifest."""
    stream = io.BytesIO(packed)
    while (task := parse_length_prefixed(DownloadTask, stream)) is not None:
        yield task.resource_id


def stored_line(task: DownloadTask, attempts: int, stored: StoredObject) -> bytes:
    """The line of a stored resource. `attempts` counts the one that succeeded."""
    return orjson.dumps(
        {
            "resource_id": task.resource_id,
            "state": STORED,
            "key": stored.key,
            "size": stored.size,
            "sha256": stored.sha256,
            "content_type": fit(stored.content_type),
            "final_url": fit(stored.final_url),
            "http_status": stored.http_status,
            "attempts": attempts,
            "error_code": "",
            "error_message": "",
        }
    )


def failed_line(task: DownloadTask, attempts: int, code: str, message: str, facts: Mapping[str, Any]) -> bytes:
    """The line of a failed resource. `facts` are what is known of the last answer: `http_status`, `final_url`.

    Where nobody told the status (a worker elsewhere, a handler), the code may name it.
    """
    known: dict[str, Any] = {name: facts[name] for name in ("http_status", "final_url") if facts.get(name)}
    known.setdefault("http_status", http_status_of(code))
    failure = {"error_code": code, "error_message": redaction.text(fit(message)), "attempts": attempts}
    return orjson.dumps(_EMPTY | {"resource_id": task.resource_id, "state": FAILED} | known | failure)


def merge(
    order: Iterable[str], former: Iterable[bytes], latest: Iterable[bytes], *, canceled: bool = False
) -> list[dict[str, Any]]:
    """One line a resource, in the manifest's order; a later line of a resource replaces its earlier one.

    `order` are the resource ids of the manifest (none for a direct producer's job: its lines stay in the order in which
    they were settled), `former` the lines of a document that is there already, `latest` those of this run. A resource
    without a line is `canceled` in a canceled job, else `unknown`.
    """
    lines: dict[str, dict[str, Any]] = {}
    missing = {"state": CANCELED, "error_code": _CANCELED_CODE} if canceled else {}
    for resource_id in order:
        lines[resource_id] = {**_EMPTY, **missing, "resource_id": resource_id}
    for raw in (*former, *latest):
        line = orjson.loads(raw)
        lines[line["resource_id"]] = {**_EMPTY, **line}
    return list(lines.values())


def document(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """The lines as stored: JSON Lines, each with its line end."""
    return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
