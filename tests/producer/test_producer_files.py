"""What the producer takes, as which job, and when."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from producer_rig import Box, boxed, files, old, settings, until, value, write

from fetchbox.config.v1 import config_pb2
from kernel.queue.work import file_job as file_jobs
from kernel.telemetry import metrics, tracing

HIGH, LOW = "jobqueue:high_priority", "jobqueue:low_priority"
_RFC3339NANO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


@pytest.mark.req("R002-job.01", "R002-job.02", "R002-job.03", "R002-job.04", "R002-job.05", "R002-reaper.01")
async def test_a_file_is_a_job_as_the_seed_writes_it(redis_server: str, tmp_path: Path) -> None:
    write(tmp_path / "in/report.csv", "twelve bytes")
    async with boxed(settings(redis_server, tmp_path, high_priority_exts=[".csv"])) as box, box.producing():
        await box.enqueued("in/report.csv")
        (payload,) = await box.redis.lrange(HIGH, 0, -1)
        (job,) = await box.jobs()
    assert job.keys() == {
        *("id", "filepath", "filesize", "priority", "retries", "creation_time", "trace_id", "span_id"),
        "origin_queue",
    }
    assert (job["filepath"], job["filesize"]) == (str(tmp_path / "in/report.csv"), 12)
    assert (job["priority"], job["retries"], job["origin_queue"]) == ("high", 0, HIGH)
    assert _RFC3339NANO.fullmatch(job["creation_time"])
    assert (job["trace_id"], job["span_id"]) == ("", ""), "no traces, no ids"
    assert file_jobs.read(payload).encode() == payload


@pytest.mark.req("R002-config.27", "R002-config.28")
async def test_globs_decide_what_is_taken(redis_server: str, tmp_path: Path) -> None:
    for name in ("a.csv", "b.txt", "deep/c.csv", "deep/old/d.csv", ".hidden.csv", "x.tmp", ".git/e.csv", "f.csv~"):
        write(tmp_path / name)
    config = settings(redis_server, tmp_path, include_globs=["*.csv"])
    config.producer.exclude_globs.append("**/old")
    async with boxed(config) as box, box.producing():
        await box.enqueued("a.csv", "deep/c.csv")
        await box.scanned()
        assert len(await box.jobs()) == 2


async def test_hidden_and_unfinished_files_are_left_alone_by_default(redis_server: str, tmp_path: Path) -> None:
    names = (".hidden", "a~", "a.tmp", "a.part", "a.partial", "a.crdownload", "a.swp", ".dir/a", "work.tmp/a", "good")
    for name in names:
        write(tmp_path / name)
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        await box.enqueued("good")
        await box.scanned()
        assert await box.paths() == ["good"]


@pytest.mark.req("R002-config.29", "R002-config.30")
async def test_extensions_choose_the_queue(redis_server: str, tmp_path: Path) -> None:
    for name in ("a.csv", "b.CSV", "c.txt", "csv"):
        write(tmp_path / name)
    config = settings(redis_server, tmp_path, high_priority_exts=["csv"])
    async with boxed(config) as box, box.producing():
        await box.enqueued("a.csv", "b.CSV", "c.txt", "csv")
        assert (await box.redis.llen(HIGH), await box.redis.llen(LOW)) == (2, 2)


@pytest.mark.req("R002-metrics.02")
async def test_produced_jobs_are_counted_by_queue(redis_server: str, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.txt"):
        write(tmp_path / name)
    before = [value("jobs_produced_total", queue=queue) for queue in (HIGH, LOW)]
    enqueued = files("enqueued")
    async with boxed(settings(redis_server, tmp_path, high_priority_exts=["csv"])) as box, box.producing():
        await box.enqueued("a.csv", "b.csv", "c.txt")
        await box.scanned()
    after = [value("jobs_produced_total", queue=queue) for queue in (HIGH, LOW)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1]
    assert files("enqueued") - enqueued == 3
    assert value("fetchbox_producer_scan_lag_seconds") < 30


async def test_a_file_that_is_still_written_is_left_alone(redis_server: str, tmp_path: Path) -> None:
    """For as long as it grows; the settling time is longer than any pause of a busy machine."""
    async with boxed(settings(redis_server, tmp_path, settle="3s")) as box, box.producing():
        path = write(tmp_path / "growing", "")
        old(write(tmp_path / "done"), 3600)
        ends = time.monotonic() + 5
        with path.open("a") as file:
            while time.monotonic() < ends:
                file.write("x")
                file.flush()
                await asyncio.sleep(0.05)
        assert "growing" not in await box.paths()
        size = path.stat().st_size
        await box.enqueued("done", "growing")
        assert next(job["filesize"] for job in await box.jobs() if job["filepath"].endswith("growing")) == size


async def test_a_settled_file_is_taken_at_once_by_its_time_of_change(redis_server: str, tmp_path: Path) -> None:
    old(write(tmp_path / "a"), 7200)
    async with boxed(settings(redis_server, tmp_path, settle="1h", scan_interval="1h")) as box, box.producing():
        await box.enqueued("a")


async def test_a_time_of_change_in_the_future_needs_a_second_look(redis_server: str, tmp_path: Path) -> None:
    old(write(tmp_path / "a"), -86_400)
    async with boxed(settings(redis_server, tmp_path, settle="500ms")) as box, box.producing():
        await box.enqueued("a")
        await box.scanned()
        assert await box.paths() == ["a"]


async def test_the_watcher_finds_what_comes_between_scans(redis_server: str, tmp_path: Path) -> None:
    """Written, renamed into place, and in a directory that is new."""
    inside = tmp_path / "in"
    old(write(inside / "sub/first"))
    async with boxed(settings(redis_server, inside, scan_interval="1h")) as box, box.producing():
        await box.enqueued("sub/first")
        await _watched(box, inside / "sub")
        old(write(tmp_path / "elsewhere")).rename(inside / "sub/renamed")
        write(inside / "new/deep/file")
        wanted = {"sub/first", "sub/renamed", "new/deep/file"}
        await until(lambda: _has(box, wanted), lambda: f"wanted {wanted}")
        write(inside / "sub/first", "changed, and longer")
        await until(lambda: _times(box, "sub/first", 2))


async def _watched(box: Box, folder: Path) -> None:
    """Waits until the watcher tells of this directory: it is set up some time after the first scan."""
    number = 0
    path = folder / "probe"
    while "sub/probe" not in await box.paths():
        write(path, "x" * (number := number + 1))
        await asyncio.sleep(0.1)
    path.unlink()


async def _has(box: Box, wanted: set[str]) -> bool:
    return wanted <= set(await box.paths())


async def _times(box: Box, name: str, times: int) -> bool:
    return (await box.paths()).count(name) == times


async def test_a_file_that_is_gone_before_it_is_enqueued_is_no_job(redis_server: str, tmp_path: Path) -> None:
    path = write(tmp_path / "brief")
    gone = files("gone")
    async with boxed(settings(redis_server, tmp_path, settle="1s")) as box, box.producing():
        settling = files("settling")
        await until(lambda: _more("settling", settling))
        path.unlink()
        await until(lambda: _more("gone", gone))
        assert await box.jobs() == []


async def _more(outcome: str, than: float) -> bool:
    return files(outcome) > than


@pytest.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(config_pb2.Tracing(enabled=True), "producer", exporter)
    yield exporter
    await tracing.shutdown()


async def test_each_enqueued_file_has_a_span_whose_ids_travel_with_its_job(
    redis_server: str, tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    write(tmp_path / "a"), write(tmp_path / "b")
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing(), box.producing():
        await box.enqueued("a", "b")
        await box.scanned(4)
        jobs = await box.jobs()
    told = {
        (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", span.attributes["job_id"])
        for span in spans.get_finished_spans()
        if span.name == "enqueue" and span.context is not None and span.attributes is not None
    }
    assert told == {(job["trace_id"], job["span_id"], job["id"]) for job in jobs}
    assert len({job["trace_id"] for job in jobs}) == 2


def test_the_outcomes_are_a_bounded_set_of_labels() -> None:
    from producer_svc.reports import ScanOutcome  # noqa: PLC0415  # one test asks

    seen = {
        sample.labels["outcome"]
        for family in metrics.REGISTRY.collect()
        for sample in family.samples
        if sample.name == "fetchbox_producer_files_total"
    }
    assert seen <= set(ScanOutcome)
    assert len(ScanOutcome) <= 50
