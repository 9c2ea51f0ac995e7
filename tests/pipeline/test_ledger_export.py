"""Snapshots of the ledger: one a turn whoever makes it, whole or not there, and what they say of jobs."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from kernel.ledger import JobRecord, Ledger
from kernel.objects import ObjectStore, ObjectStoreError
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.service.service import Service
from pipeline import bootstrap
from pipeline.export import ledger as exported
from pipeline.export.ledger import LEDGER, LedgerExport
from pipeline.lake.layout import Layout
from pipeline.lake.snapshots import LedgerSnapshot, SnapshotFile, commit_key, slot_of
from pipeline.lake.store import LakeStore

DAY = 86_400_000


@pytest.fixture
def lake(config: Config, resources: Resources) -> LakeStore:
    return LakeStore(resources.objects, config)


@pytest.fixture
def ledger(config: Config, resources: Resources) -> Ledger:
    return Ledger(resources.redis, config)


def _export(resources: Resources, ledger: Ledger, lake: LakeStore, interval: int = DAY) -> LedgerExport:
    return LedgerExport(resources.redis, ledger, lake, interval)


async def _accept(ledger: Ledger, count: int) -> list[str]:
    ids = [f"job-{number:04}" for number in range(count)]
    await asyncio.gather(
        *(ledger.accept(JobRecord(job_id=job_id, job_type="default", resource_total=2)) for job_id in ids)
    )
    return ids


async def _commits(lake: LakeStore) -> list[LedgerSnapshot]:
    found = await lake.objects.list(lake.bucket, f"{lake.layout.root}ledger/")
    documents = [await lake.objects.get(lake.bucket, info.key) for info in found if info.key.endswith(".json")]
    return [LedgerSnapshot.from_json(document or b"") for document in documents]


async def _rows(lake: LakeStore, snapshot: LedgerSnapshot) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for file in snapshot.files:
        body = await lake.objects.get(lake.bucket, file.key)
        assert body is not None
        table = pq.read_table(BytesIO(body))
        assert table.schema.remove_metadata() == LEDGER
        assert (table.num_rows, len(body), hashlib.sha256(body).hexdigest()) == (file.rows, file.bytes, file.sha256)
        rows += table.to_pylist()
    assert len(rows) == snapshot.rows
    return rows


async def test_all_jobs_are_in_a_snapshot_and_there_is_one_a_turn(
    resources: Resources, ledger: Ledger, lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported, "ROWS_OF_FILE", 20)
    monkeypatch.setattr(exported, "_ROWS_TOGETHER", 7)
    ids = await _accept(ledger, 50)
    export = _export(resources, ledger, lake)
    assert await export.turn()
    assert not await export.turn()
    assert not await _export(resources, ledger, lake).turn()
    (snapshot,) = await _commits(lake)
    assert [file.rows for file in snapshot.files] == [21, 21, 8]
    assert sorted(row["job_id"] for row in await _rows(lake, snapshot)) == ids
    assert abs(snapshot.taken_ms - await resources.redis.now_ms()) < 60_000


async def test_a_row_is_a_job_as_operators_see_it(resources: Resources, ledger: Ledger, lake: LakeStore) -> None:
    await ledger.accept(JobRecord(job_id="a", job_type="default", tenant="acme", resource_total=2, trace_id="ab" * 16))
    error = b'{"code":"DOWNLOAD_HTTP_403","message":"GET https://me:pw@h/x?token=s3cret failed"}'
    strange = {"status": "error", "error": error, "updated_ts": "999999999999999", "created_ts": "1700000000123"}
    await resources.redis.commands.hset(keys.job("a"), mapping=strange)
    assert await _export(resources, ledger, lake).turn()
    (snapshot,) = await _commits(lake)
    (row,) = await _rows(lake, snapshot)
    assert row == {
        "job_id": "a",
        "job_type": "default",
        "tenant": "acme",
        "task": "fetch",
        "flow": None,
        "status": "failed",
        "created_at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "updated_at": None,
        "resource_total": 2,
        "resource_completed": 0,
        "resource_failed": 0,
        "error_code": "DOWNLOAD_HTTP_403",
        "error_message": "GET https://REDACTED@h/x?token=REDACTED failed",
        "manifest_key": "s3://fetchbox/manifests/default/a/metadata.json",
        "results_key": "",
        "log_offset": row["log_offset"],
        "trace_id": "ab" * 16,
        "revision": 1,
        "direct": False,
        "ttl_s": 0,
    }


async def test_the_first_snapshot_waits_for_a_job_and_later_ones_do_not(
    resources: Resources, ledger: Ledger, lake: LakeStore
) -> None:
    export = _export(resources, ledger, lake)
    assert not await export.turn()
    assert await _commits(lake) == []
    (job_id,) = await _accept(ledger, 1)
    assert await export.turn()
    assert [snapshot.rows for snapshot in await _commits(lake)] == [1]
    assert await ledger.cancel(job_id, "test")
    assert await ledger.delete(job_id, 1 << 50)
    for made in await lake.objects.list(lake.bucket, f"{lake.layout.root}ledger/"):
        if made.key.endswith(".json"):  # the next turn comes
            await lake.objects.delete(lake.bucket, made.key)
    assert await _export(resources, ledger, lake).turn()
    (snapshot,) = await _commits(lake)
    assert (snapshot.rows, [file.rows for file in snapshot.files]) == (0, [0])
    assert await _rows(lake, snapshot) == []
    assert snapshot.is_whole({file.key: file.bytes for file in snapshot.files})


async def test_exporters_that_race_make_one_snapshot(resources: Resources, ledger: Ledger, lake: LakeStore) -> None:
    ids = await _accept(ledger, 20)
    made = await asyncio.gather(*(_export(resources, ledger, lake).turn() for _ in range(5)))
    assert made.count(True) == 1
    (snapshot,) = await _commits(lake)
    assert sorted(row["job_id"] for row in await _rows(lake, snapshot)) == ids


class _DyingStore:
    """The object store of a process that dies, or loses its store, before its nth put."""

    def __init__(self, objects: ObjectStore, puts: int) -> None:
        self._objects = objects
        self._left = puts
        self.bucket = objects.bucket
        self.exists = objects.exists

    async def put(self, *args: Any, **options: Any) -> bool:
        if self._left == 0:
            raise ObjectStoreError("put", "gone")
        self._left -= 1
        return await self._objects.put(*args, **options)


@pytest.mark.parametrize("puts", range(4))
async def test_one_that_is_cut_short_is_none_and_is_made_again(
    resources: Resources, ledger: Ledger, lake: LakeStore, monkeypatch: pytest.MonkeyPatch, puts: int
) -> None:
    monkeypatch.setattr(exported, "ROWS_OF_FILE", 5)
    monkeypatch.setattr(exported, "_ROWS_TOGETHER", 5)
    await _accept(ledger, 15)
    export = _export(resources, ledger, lake)
    lake.objects = _DyingStore(resources.objects, puts)  # type: ignore[assignment]  # as much of it as is used
    with pytest.raises(ObjectStoreError):
        await export.turn()
    lake.objects = resources.objects
    assert await _commits(lake) == []
    assert await export.turn()
    (snapshot,) = await _commits(lake)
    assert len(await _rows(lake, snapshot)) == 15


async def test_the_role_writes_them(resources: Resources, config: Config, ledger: Ledger, lake: LakeStore) -> None:
    await _accept(ledger, 3)
    service = await bootstrap.build(config, resources)
    await service.start()
    try:
        async with asyncio.timeout(60):
            while not (found := await _commits(lake)):  # noqa: ASYNC110 - another process would be the one to tell
                await asyncio.sleep(0.05)
    finally:
        await service.stop()
    assert found[0].rows == 3


async def test_the_role_leaves_them_alone_where_they_are_not_wanted(resources: Resources, config: Config) -> None:
    def named(service: Service) -> list[str]:
        return [duty.name for duty in service.duties]

    assert "exporter-ledger" in named(await bootstrap.build(config, resources))
    config.exporter.ledger_interval.FromSeconds(0)
    assert "exporter-ledger" not in named(await bootstrap.build(config, resources))


@given(st.integers(0, 4_000_000_000_000), st.integers(1, 400_000_000))
def test_turns_are_the_same_for_all_and_follow_each_other(now: int, interval: int) -> None:
    began = now - now % interval
    slot = slot_of(now, interval)
    assert slot == slot_of(began, interval) == slot_of(began + interval - 1, interval)
    assert slot < slot_of(began + interval, interval)
    assert commit_key(Layout("lake/"), slot) == f"lake/v1/ledger/{slot}.json"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.data())
def test_a_snapshot_is_valid_with_all_of_its_files_only(sizes: list[int], data: st.DataObject) -> None:
    files = tuple(SnapshotFile(f"{number}", 1, size, "") for number, size in enumerate(sizes))
    snapshot = LedgerSnapshot("slot", 1, len(files), files)
    assert LedgerSnapshot.from_json(snapshot.to_json()) == snapshot
    there = {file.key: file.bytes for file in files}
    assert snapshot.is_whole({**there, "other": 3})
    key = data.draw(st.sampled_from(sorted(there)))
    assert not snapshot.is_whole({**there, key: there[key] + 1})
    del there[key]
    assert not snapshot.is_whole(there)
    assert not LedgerSnapshot("slot", 1, 0, ()).is_whole(there)
