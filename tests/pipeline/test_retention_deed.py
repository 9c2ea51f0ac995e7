"""Retention in a real object store where nothing is to be compacted: what is over goes, whatever happens."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from cli.embedded.seaweed import SeaweedFS
from cli.main import app
from cli.problems import CommandError
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask, JobStatus
from kernel.clock import SystemClock
from kernel.objects import ObjectStore, ObjectStoreError
from pipeline.lake.compaction import CompactFile, Compaction
from pipeline.lake.errors import LakeFileError
from pipeline.lake.layout import LakeSegment, Layout
from pipeline.lake.store import LakeStore
from pipeline.retention.deed import Deed, DeedOutcome
from pipeline.retention.run import Retention
from pipeline.retention.verdicts import Compacting, RetentionPlan, RetentionVerdict
from pipeline.tables import STATUS, TASKS
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.pipeline.lake_rig import Lake
from tests.pipeline.retention_clock import StandingClock, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
DAY = NOON.date()
"""Of today: no clock in these tests is behind that of the object store."""
OLD = date(2026, 3, 1)


def _no_spark() -> SparkSession:
    raise AssertionError("nothing is to be compacted")


def _retained(config: Config, days: int, ms: int = 0) -> tuple[RetentionPlan, DeedOutcome]:
    with Retention(config, StandingClock(NOON + timedelta(days=days, milliseconds=ms))) as retention:
        plan = retention.plan()
        return plan, retention.run(plan, _no_spark)


def _hidden(config: Config, days: int) -> None:
    """What is over counts no longer; nothing is compacted."""
    with Retention(config, StandingClock(NOON + timedelta(days=days))) as retention:
        retention.run(replace(retention.plan(), compactions=()), _no_spark)


async def _fill(config: Config, keys: list[str]) -> None:
    objects = ObjectStore(config.object_store)
    try:
        await asyncio.gather(*(objects.put(config.object_store.bucket, key, b"x" * 20) for key in keys))
    finally:
        await objects.close()


def _segments(config: Config, count: int, day: date = DAY, partition: int = 0, first: int = 0) -> list[str]:
    layout = Layout(config.lake.prefix)
    start = at(day, 0)
    return [
        layout.segment(LakeSegment("tasks", partition, 1, (start + n, 0), day)) for n in range(first, first + count)
    ]


@pytest.mark.timeout(120)
def test_2500_objects_are_all_deleted(config: Config, lake: Lake) -> None:
    over, newest = _segments(config, 2500), _segments(config, 1, DAY + timedelta(days=20))
    asyncio.run(_fill(config, [*over, *newest]))
    _hidden(config, days=19)
    assert set(over) <= set(lake.keys("raw"))
    plan, outcome = _retained(config, days=20)
    assert {one.info.key for one in plan.of(RetentionVerdict.DROP)} == set(over)
    assert (outcome.deleted, outcome.deleted_bytes, outcome.remaining) == (2500, 50_000, {})
    assert lake.keys("raw") == newest
    record = lake.keys("retention")[-1]
    told = json.loads(lake.client.get_object(Bucket=lake.bucket, Key=record)["Body"].read())
    assert told["deleted"] == 2500


def test_a_day_that_is_over_is_hidden_first(config: Config, lake: Lake) -> None:
    """Whoever reads it in its last moment has a day to finish; then it goes, and then its commit."""
    segments = _segments(config, 3)
    asyncio.run(_fill(config, [*segments, *_segments(config, 1, DAY + timedelta(days=30), partition=0)]))
    _, outcome = _retained(config, days=8)
    assert len(outcome.retired) == 1
    commit = Compaction.from_json(lake.client.get_object(Bucket=lake.bucket, Key=outcome.retired[0])["Body"].read())
    assert (commit.files, set(commit.replaces)) == ((), set(segments))
    assert set(segments) <= set(lake.keys("raw"))
    assert _retained(config, days=9)[1].deleted == 3
    assert set(lake.keys("raw")).isdisjoint(segments)
    assert _retained(config, days=9, ms=1)[1].deleted == 1
    assert lake.keys("compact") == []


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "Pacific/Kiritimati"])
def test_days_are_those_of_utc_wherever_it_runs(
    config: Config, lake: Lake, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_fill(config, _segments(config, 2) + _segments(config, 2, DAY + timedelta(days=1))))
    midnight = NOON.replace(hour=0) + timedelta(days=8)
    clocks = [StandingClock(midnight + timedelta(milliseconds=ms)) for ms in (-1, 0)]
    plans = []
    for name in ("UTC", zone):
        monkeypatch.setenv("TZ", name)
        time.tzset()
        for clock in clocks:
            with Retention(config, clock) as retention:
                plans.append(retention.plan().retirings)
    monkeypatch.undo()
    time.tzset()
    assert plans[:2] == plans[2:]
    assert [[commit.day for commit in plan] for plan in plans[:2]] == [[], [str(DAY)]]


async def test_what_the_store_would_not_delete_is_told_and_tried_again(
    config: Config, lake: Lake, s3: SeaweedFS
) -> None:
    over = _segments(config, 3)
    await _fill(config, [*over, *_segments(config, 1, DAY + timedelta(days=20))])
    await asyncio.to_thread(_hidden, config, 19)
    error = f"<Error><Key>{over[1]}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    refused = f"<DeleteResult>{error}</DeleteResult>"
    async with FlakyS3(s3.endpoint) as proxy:
        broken = _through(proxy, config)
        proxy.faults = lambda method, target: refused if method == "POST" else None
        _, outcome = await asyncio.to_thread(_retained, broken, 20)
    assert outcome.remaining == {over[1]: "AccessDenied no"}
    assert not outcome.well
    _, outcome = await asyncio.to_thread(_retained, config, 20)
    assert outcome.well
    assert len(lake.keys("raw")) == 1


async def test_a_fast_clock_does_nothing(config: Config, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the object store is believed where it is behind."""
    today = datetime.now(UTC).date()
    await _fill(config, [*_segments(config, 2, today - timedelta(days=1)), *_segments(config, 1, today)])
    true_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: true_ms + 400 * 86_400_000)

    def run() -> RetentionPlan:
        with Retention(config) as retention:
            return retention.plan()

    plan = await asyncio.to_thread(run)
    assert plan.empty
    assert abs(plan.now_ms - true_ms) < 3_600_000


async def test_a_commit_of_ones_own_is_known_whatever_its_etag(config: Config, lake: Lake) -> None:
    """Where an answer was lost. Multipart uploads have ETags that are no MD5, as all have in buckets with a key."""
    day = DAY.isoformat()
    objects = ObjectStore(config.object_store)
    deed = Deed(LakeStore(objects, config), StandingClock(NOON).now_ms)
    file = CompactFile(f"{lake.layout.root}compact/tasks/day={day}/000001/a/_/0.parquet", "_", 1, 3, "")
    lake.put(file.key, b"abc")
    compacting = Compacting("tasks", DAY, 1, (), (), (), (), (), "")
    first, again = DeedOutcome(0), DeedOutcome(0)
    try:
        await deed.commit(compacting, (file,), deed.now_ms(), first)
        [key] = first.compacted
        _as_multipart(lake, key)
        await deed.commit(compacting, (file,), deed.now_ms(), again)
    finally:
        await objects.close()
    assert (again.compacted, again.outrun) == ([key], [])
    assert file.key in lake.keys("compact")


async def test_a_commit_that_went_while_one_looked_stops_what_is_planned_for_its_day(
    config: Config, lake: Lake, s3: SeaweedFS
) -> None:
    """What it named may be named by a commit that came after the listing."""
    [segment] = _segments(config, 1)
    await _fill(config, [segment, *_segments(config, 1, DAY + timedelta(days=30))])
    lake.compact(TASKS, DAY, pa.table({"a": [1]}), [segment])
    async with FlakyS3(s3.endpoint) as proxy:
        proxy.faults = lambda method, target: "gone" if target.endswith("000001.json") else None
        plan, _ = await asyncio.to_thread(_retained, _through(proxy, config), 6)
    assert plan.empty
    assert len(plan.decisions) == 4


async def test_interrupted_at_every_step_and_run_again(config: Config, lake: Lake, s3: SeaweedFS) -> None:
    """The store falls silent after n requests that change something, for every n: a later run ends what was begun."""
    segments = [*_segments(config, 2), *_segments(config, 2, DAY + timedelta(days=2))]
    newest = _segments(config, 1, DAY + timedelta(days=20))
    step, done = 0, False
    while not done:
        await asyncio.to_thread(_empty, lake)
        await _fill(config, [*segments, *newest])
        await asyncio.to_thread(_hidden, config, 8)
        async with FlakyS3(s3.endpoint) as proxy:
            done = await asyncio.to_thread(_until, _through(proxy, config), proxy, step)
        await asyncio.to_thread(_retained, config, 10)
        [*_, commit] = lake.keys("compact")
        assert f"day={DAY + timedelta(days=2)}" in commit, step
        assert set(segments[2:]) <= set(lake.keys("raw"))
        await asyncio.to_thread(_retained, config, 11)
        assert lake.keys("raw") == newest
        await asyncio.to_thread(_retained, config, 12)
        assert lake.keys("compact") == []
        step += 1
    assert step > 3


async def test_two_at_once(config: Config, lake: Lake) -> None:
    await _fill(config, [*_segments(config, 1200), *_segments(config, 2, DAY + timedelta(days=12))])
    await _fill(config, _segments(config, 1, DAY + timedelta(days=20)))
    await asyncio.to_thread(_hidden, config, 19)

    runs = await asyncio.gather(*(asyncio.to_thread(_retained, config, 20, ms) for ms in range(2)))
    outcomes = [outcome for _, outcome in runs]
    assert all(outcome.well for outcome in outcomes)
    assert len(lake.keys("raw")) == 3
    assert sum(len(outcome.retired) for outcome in outcomes) == 1
    assert len(lake.keys("retention")) == 3


def test_the_command(config: Config, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run changes nothing and tells what a run does."""
    _environment(config, monkeypatch)
    lake.write(TASKS, [(at(OLD), DownloadTask(job_id="j"))])
    now = round(time.time() * 1000)
    lake.write(TASKS, [(now, DownloadTask(job_id="k"))])
    lake.write(STATUS, [(now, JobStatus(job_id="k", timestamp_ms=at(OLD)))])  # told late: it is as old as its entry
    before = lake.keys()
    dry = CliRunner().invoke(app, ["lake", "retain", "--dry-run", "--json"])
    assert dry.exit_code == 0, dry.output
    [told] = json.loads(dry.stdout)["decisions"]
    assert (told["verdict"], told["area"], told["day"], told["objects"]) == ("retire", "raw/tasks", str(OLD), 1)
    assert lake.keys() == before
    assert "ended more than 7 d ago" in CliRunner().invoke(app, ["lake", "retain", "--dry-run"]).stdout
    done = CliRunner().invoke(app, ["lake", "retain", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["retired"]) == 1
    assert len(lake.keys("compact")) == 1


def test_the_status(config: Config, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _environment(config, monkeypatch)
    keys = lake.write(TASKS, [(at(OLD, hour), DownloadTask(job_id="j")) for hour in range(3)])
    lake.compact(TASKS, OLD, lake.read(keys[0]), keys)
    lake.write(TASKS, [(at(OLD + timedelta(days=1)), DownloadTask(job_id="k"))] * 2)
    shown = CliRunner().invoke(app, ["lake", "status", "--json"])
    assert shown.exit_code == 0, shown.output
    told = {one["table"]: one for one in json.loads(shown.stdout)["tables"]}
    tasks = told["tasks"]
    assert (tasks["first_day"], tasks["last_day"]) == ("2026-03-01", "2026-03-02")
    assert (tasks["days"], tasks["compacted_days"], tasks["segments"], tasks["rows"]) == (2, 1, 1, 5)
    assert tasks["exported"] == {"0": f"{at(OLD + timedelta(days=1))}-1"}
    assert told["logs"]["days"] == 0
    assert "2026-03-01" in CliRunner().invoke(app, ["lake", "status"]).stdout


@pytest.mark.parametrize("key", ["epochs/tasks/part=000/000002.json", "compact/tasks/day=2026-03-01/000001.json"])
async def test_a_document_that_cannot_be_read_is_named(config: Config, lake: Lake, key: str) -> None:
    lake.put(f"{lake.layout.root}{key}", b"[]")
    objects = ObjectStore(config.object_store)
    store = LakeStore(objects, config)
    try:
        with pytest.raises(LakeFileError, match=f"{key} cannot be read"):
            await (store.markers("tasks") if key.startswith("epochs") else store.compactions("tasks"))
    finally:
        await objects.close()


def test_the_status_names_a_document_that_cannot_be_read(
    config: Config, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _environment(config, monkeypatch)
    lake.put(lake.layout.marker("tasks", 0, 2), b"{}")
    shown = CliRunner().invoke(app, ["lake", "status"])
    assert isinstance(shown.exception, CommandError)
    assert "part=000/000002.json cannot be read" in str(shown.exception)


@pytest.mark.parametrize("command", ["retain", "status"])
def test_the_commands_say_what_is_to_be_installed(
    config: Config, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _environment(config, monkeypatch)
    monkeypatch.setattr("pipeline.extras.find_spec", lambda name: None)
    shown = CliRunner().invoke(app, ["lake", command])
    assert isinstance(shown.exception, CommandError)
    assert "pip install '.[export]'" in str(shown.exception)


def _environment(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    store = config.object_store
    for name in ("endpoint", "access_key_id", "secret_access_key", "bucket"):
        monkeypatch.setenv(f"FETCHBOX_OBJECT_STORE_{name.upper()}", getattr(store, name))
    monkeypatch.setenv("REDIS_ADDR", config.redis.addr)


def _as_multipart(lake: Lake, key: str) -> None:
    body = lake.client.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
    place = {"Bucket": lake.bucket, "Key": key}
    upload = lake.client.create_multipart_upload(**place)["UploadId"]
    part = lake.client.upload_part(**place, UploadId=upload, PartNumber=1, Body=body)
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    lake.client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload=parts)


def _through(proxy: FlakyS3, config: Config) -> Config:
    behind = Config()
    behind.CopyFrom(config)
    behind.object_store.endpoint, behind.object_store.put_attempts = proxy.endpoint, 1
    return behind


def _until(config: Config, proxy: FlakyS3, steps: int) -> bool:
    """Whether a run ended before the store fell silent."""
    left = steps

    def fault(method: str, target: str) -> str | None:
        nonlocal left
        left -= method in {"PUT", "POST"}
        return "503" if left < 0 else None

    proxy.faults = fault
    try:
        return _retained(config, 10)[1].well
    except ObjectStoreError:
        return False


def _empty(lake: Lake) -> None:
    for key in lake.keys(""):
        lake.client.delete_object(Bucket=lake.bucket, Key=key)
