"""One delivered entry of a task stream, and what can be read from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.ids import is_key_safe

_DELIVERIES = (1 << 20) - 1


@dataclass(slots=True)
class Entry:
    """An entry that Redis counts as ours."""

    partition: int
    id: str
    payload: bytes
    traceparent: str
    ledgered: bool
    """Ingest published it, so its job has a record, or had one that was pruned."""
    deliveries: int
    attempts: int
    crashes: int
    solo: bool
    task: DownloadTask | None = None

    @property
    def ms(self) -> int:
        """When it was added, by the clock of Redis."""
        return int(self.id.partition("-")[0])

    def decode(self) -> str:
        """Reads the task; the failure code where that is not possible, else empty."""
        try:
            task = DownloadTask.FromString(self.payload)
        except DecodeError:
            return "VALIDATION_UNDECODABLE"
        if not task.job_id:
            return "VALIDATION_UNDECODABLE"
        self.task = task
        return "" if task.resource_id and is_key_safe(task.job_id) else "VALIDATION_TASK"


def token(entry: Entry, task: DownloadTask) -> int:
    """What fences a settlement: a later replay is above an earlier one, then a later delivery."""
    return (task.replay << 20) | min(entry.deliveries, _DELIVERIES)


def read(
    partition: int,
    raw: Sequence[object],
    deliveries: int = 1,
    attempts: int = 0,
    crashes: int = 0,
    *,
    solo: bool = False,
) -> Entry:
    """An entry from its reply: id, then field, value, ..."""
    entry_id, fields = raw
    assert isinstance(entry_id, bytes)  # noqa: S101 - the shape of a reply
    assert isinstance(fields, list)  # noqa: S101 - the shape of a reply
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    payload, ledgered = named.get(b"payload", b""), b"ledger" in named
    traceparent = named.get(b"traceparent", b"").decode("ascii", "replace")
    return Entry(partition, entry_id.decode(), payload, traceparent, ledgered, deliveries, attempts, crashes, solo)
