"""Snapshots of the ledger into the lake, one a turn (`exporter.ledger_interval`), whoever is first.

A snapshot that a process dies over has no commit: the next one begins anew, and retention collects what was left.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Final

import pyarrow as pa

from flows.model import label
from kernel import redaction
from kernel.ids import uuid7
from kernel.ledger import JobRecord, Ledger, operator_status
from kernel.redis.clients import RedisClients
from kernel.telemetry.logs import get_logger
from pipeline.lake.segments import CONTENT_TYPE, encode
from pipeline.lake.snapshots import LedgerSnapshot, SnapshotFile, commit_key, file_key, slot_of
from pipeline.lake.store import LakeStore
from pipeline.schema.columns import TIMESTAMP

ROWS_OF_FILE: Final = 100_000
_ROWS_TOGETHER: Final = 5000
"""Records that are held as such; the others of a file are columns already."""
_MAX_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_JSON: Final = "application/json"

LEDGER: Final = pa.schema(
    [
        ("job_id", pa.string()),
        ("job_type", pa.string()),
        ("tenant", pa.string()),
        ("task", pa.string()),
        ("flow", pa.string()),
        ("status", pa.string()),
        ("created_at", TIMESTAMP),
        ("updated_at", TIMESTAMP),
        ("resource_total", pa.int64()),
        ("resource_completed", pa.int64()),
        ("resource_failed", pa.int64()),
        ("error_code", pa.string()),
        ("error_message", pa.string()),
        ("manifest_key", pa.string()),
        ("results_key", pa.string()),
        ("log_offset", pa.int64()),
        ("trace_id", pa.string()),
        ("revision", pa.int64()),
        ("direct", pa.bool_()),
        ("ttl_s", pa.int64()),
    ]
)
"""The columns: a record as operators see it, `status` in their words, texts without secrets."""

_log = get_logger("exporter")


class LedgerExport:
    """The work of a periodic duty. Raises `UNAVAILABLE` of Redis or ObjectStoreError; then the turn is tried again."""

    def __init__(self, clients: RedisClients, ledger: Ledger, lake: LakeStore, interval_ms: int) -> None:
        self._clients = clients
        self._ledger = ledger
        self._lake = lake
        self._interval = interval_ms
        self._done = ""
        """The last turn of which this process knows that it is done."""

    async def turn(self) -> bool:
        """Makes the snapshot of the present turn unless there is one; whether it was made here."""
        now = await self._clients.now_ms()
        slot = slot_of(now, self._interval)
        if slot == self._done:
            return False
        is_done = await self._is_done(slot)
        made = not is_done and await self._has_begun() and await self._make(slot, now)
        if made or is_done:
            self._done = slot
        return made

    async def _is_done(self, slot: str) -> bool:
        return await self._lake.objects.exists(self._lake.bucket, commit_key(self._lake.layout, slot))

    async def _has_begun(self) -> bool:
        """Whether there is a job, or ever was: a first snapshot without any would stand for a whole turn."""
        jobs, _ = await self._ledger.counts()
        earlier = f"{self._lake.layout.root}ledger/"
        return jobs > 0 or bool(await self._lake.objects.list(self._lake.bucket, earlier, limit=1))

    async def _make(self, slot: str, now: int) -> bool:
        attempt, files = uuid7(), list[SnapshotFile]()
        async for rows in self._tables():
            if await self._is_done(slot):
                return False  # another was faster
            key = file_key(self._lake.layout, slot, attempt, len(files))
            files.append(await self._put(key, slot, rows))
        snapshot = LedgerSnapshot(slot, now, sum(file.rows for file in files), tuple(files))
        key, document = commit_key(self._lake.layout, slot), snapshot.to_json()
        made = await self._lake.objects.put(self._lake.bucket, key, document, content_type=_JSON, if_absent=True)
        if made:
            size = sum(file.bytes for file in files)
            _log.info("ledger_exported", count=snapshot.rows, size=size)
        return made

    async def _put(self, key: str, slot: str, rows: pa.Table) -> SnapshotFile:
        body = await asyncio.to_thread(encode, rows, {"slot": slot})
        await self._lake.objects.put(self._lake.bucket, key, body, content_type=CONTENT_TYPE)
        return SnapshotFile(key, rows.num_rows, len(body), hashlib.sha256(body).hexdigest())

    async def _tables(self) -> AsyncIterator[pa.Table]:
        """All records, so many of them a file; at least one table."""
        batches: list[pa.RecordBatch] = []
        records: list[JobRecord] = []
        told = 0
        async for record in self._ledger.all():
            records.append(record)
            if len(records) == _ROWS_TOGETHER:
                batches.append(await asyncio.to_thread(_columns, records))
                records = []
            if len(batches) * _ROWS_TOGETHER >= ROWS_OF_FILE:
                yield pa.Table.from_batches(batches, LEDGER)
                batches, told = [], told + 1
        if records:
            batches.append(_columns(records))
        if batches or not told:
            yield pa.Table.from_batches(batches, LEDGER)


def _columns(records: list[JobRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([_row(record) for record in records], LEDGER)


def _row(record: JobRecord) -> dict[str, str | int | bool | None]:
    return {
        "job_id": record.job_id,
        "job_type": record.job_type,
        "tenant": record.tenant,
        "task": record.task,
        "flow": label.shown(record.flow) or None,
        "status": operator_status(record.status),
        "created_at": _time(record.created_ms),
        "updated_at": _time(record.updated_ms),
        "resource_total": record.resource_total,
        "resource_completed": record.resource_completed,
        "resource_failed": record.resource_failed,
        "error_code": record.error_code,
        "error_message": redaction.text(record.error_message),
        "manifest_key": record.manifest_key,
        "results_key": record.results_key,
        "log_offset": record.log_offset,
        "trace_id": record.trace_id,
        "revision": record.revision,
        "direct": record.direct,
        "ttl_s": record.ttl_s,
    }


def _time(ms: int) -> int | None:
    """Microseconds since 1970; None for a time that no timestamp has."""
    return ms * 1000 if ms <= _MAX_MS else None
