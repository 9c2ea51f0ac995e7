"""One delivered entry of a lane, and what can be read from it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from google.protobuf.message import DecodeError

from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from kernel.breakers.types import Admission
from kernel.ids import is_key_safe
from kernel.queue.work.types import Claim
from kernel.redis import keys

_DELIVERIES = (1 << 20) - 1
_UNDECODABLE = "VALIDATION_UNDECODABLE"
_NOT_RUNNABLE = "VALIDATION_TASK"
_LONGEST_REPLAY = 6
"""Digits of a replay's number: more is no number of ours."""


@dataclass(slots=True)
class QueueEntry:
    """An entry that Redis counts as ours."""

    lane: str
    partition: int
    id: str
    fields: list[bytes]
    """Field, value, ... as they came."""
    named: dict[bytes, bytes]
    """The same by name; of several with one name the last."""
    deliveries: int
    attempts: int
    crashes: int
    solo: bool
    payload: bytes
    traceparent: str
    ledgered: bool
    """Ingest made the record of its job: one that is missing was pruned, or has expired."""
    work: DownloadTask | QueuedTask | None = None
    tried: bool = False
    """Its start was sent before, and the reply may have been lost."""
    circuit: str = ""
    """The circuit of which it is the probe; empty where it is none."""
    admission: Admission | None = None
    """What that circuit breaker has answered."""

    @property
    def ms(self) -> int:
        """When it was added, by the clock of Redis."""
        return int(self.id.partition("-")[0])

    @property
    def queued(self) -> bool:
        """Whether it is a task job."""
        return self.lane == keys.QUEUE

    @property
    def lost(self) -> bool:
        """Whether it stands for a resource whose bytes nobody has any more."""
        return b"lost" in self.named

    def decode(self) -> str:
        """Reads the work; the failure code where that is not possible, else empty."""
        return self._decode_queued() if self.queued else self._decode_download()

    def raw(self) -> bytes:
        """The bytes that nobody could read, as a dead letter keeps them (`DeadLetterTask.undecodable`)."""
        if not self.queued:
            return self.payload
        return orjson.dumps([base64.b64encode(part).decode() for part in self.fields])

    def _decode_download(self) -> str:
        try:
            task = DownloadTask.FromString(self.payload)
        except DecodeError:
            return _UNDECODABLE
        if not task.job_id:
            return _UNDECODABLE
        self.work = task
        return "" if task.resource_id and is_key_safe(task.job_id) else _NOT_RUNNABLE

    def _decode_queued(self) -> str:
        """Reads the fields of a task job; a payload that is no JSON is the handler's to see (`_raw`)."""
        named = self.named
        try:
            job_id, task = named[b"job_id"].decode(), named[b"task"].decode()
        except (KeyError, UnicodeDecodeError):
            return _UNDECODABLE
        if not is_key_safe(job_id) or not task or b"payload" not in named:
            return _UNDECODABLE
        self.work = QueuedTask(job_id=job_id, task=task, payload=self.payload)
        replay = named.get(b"replay")
        if replay is not None and replay.isdigit() and len(replay) <= _LONGEST_REPLAY:
            self.work.replay = int(replay)
        flow = named.get(b"flow")
        if flow is not None:
            self.work.flow = flow.decode(errors="replace")
        return ""


def download(entry: QueueEntry) -> DownloadTask:
    """The resource of an entry that was decoded as one."""
    assert isinstance(entry.work, DownloadTask)  # noqa: S101 - only decoded entries are started
    return entry.work


def queued_task(entry: QueueEntry) -> QueuedTask:
    """The task job of an entry that was decoded as one."""
    assert isinstance(entry.work, QueuedTask)  # noqa: S101 - only decoded entries are started
    return entry.work


def claimed(entry: QueueEntry, granted: int, epoch: int, began_ms: int = 0) -> Claim:
    """The claim of a decoded entry that may run, under the token that was granted."""
    assert entry.work is not None  # noqa: S101 - only decoded entries are started
    return Claim(
        entry.partition,
        entry.id,
        entry.payload,
        entry.work,
        granted,
        entry.attempts,
        entry.crashes,
        entry.traceparent,
        epoch,
        entry.solo,
        entry.ledgered,
        circuit=entry.circuit,
        admission=entry.admission,
        began_ms=began_ms,
    )


def token(entry: QueueEntry) -> int:
    """What fences a settlement: a later replay is above an earlier one, then a later delivery."""
    replay = entry.work.replay if entry.work is not None else 0
    return (replay << 20) | min(entry.deliveries, _DELIVERIES)


def read(
    lane: str,
    partition: int,
    raw: Sequence[object],
    deliveries: int = 1,
    attempts: int = 0,
    crashes: int = 0,
    *,
    solo: bool = False,
) -> QueueEntry:
    """An entry from its reply: id, then field, value, ..."""
    entry_id, fields = raw
    assert isinstance(entry_id, bytes)  # noqa: S101 - the shape of a reply
    assert isinstance(fields, list)  # noqa: S101 - the shape of a reply
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    payload, ledgered = named.get(b"payload", b""), b"ledger" in named
    parent = named.get(b"traceparent")
    return QueueEntry(
        lane,
        partition,
        entry_id.decode(),
        fields,
        named,
        deliveries,
        attempts,
        crashes,
        solo,
        payload,
        parent.decode("ascii", "replace") if parent else "",
        ledgered,
    )
