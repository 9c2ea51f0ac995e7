"""Retention: what goes, what stays, and what is written down before."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from journal_rig import append_of, begun, end, eventually, line, of_step, start, story, tell, whole

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_RUNS, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_TIMELINE
from flows.journal.archive import Archive
from flows.journal.journal import VIEWS, stream_of
from flows.journal.keeping import Keeping
from flows.journal.redis_journal import RedisJournal
from flows.journal.run_entries import IndexKeeping
from flows.model import kinds
from flows.model.codec import from_json, to_json
from flows.model.events import data_of
from flows.model.order import read
from flows.model.state import state_of
from flows.model.types import FlowState, Run
from flows.tails.reading import RunReading
from kernel.durations import millis
from kernel.log.exported import Exported
from kernel.redis import keys
from kernel.service.resources import Resources
from operator_svc import bootstrap

DAY = 86_400_000


@pytest.fixture
async def journal(resources: Resources, config: Config) -> AsyncIterator[RedisJournal]:
    made = RedisJournal(resources.redis, config)
    yield made
    await made.close()


@pytest.fixture
def kept(config: Config) -> Config:
    """Runs are kept for ten days, their timelines for two."""
    config.flow_engine.retention.FromSeconds(10 * 86_400)
    config.flow_engine.timeline_retention.FromSeconds(2 * 86_400)
    config.flow_engine.timeline_max_length = 4
    return config


async def _ended(journal: RedisJournal, resources: Resources, flow_id: str, ago_ms: int) -> Run:
    """A run with a whole story that ended some time ago."""
    run = await begun(journal, flow_id)
    await tell(journal, run, story(run))
    await _age(resources, run, ago_ms)
    return run


async def _age(resources: Resources, run: Run, ago_ms: int) -> None:
    ended = await resources.redis.now_ms() - ago_ms
    commands = resources.redis.commands
    await commands.execute_command("HSET", keys.flow(run.flow_id), "ended", ended)
    await commands.execute_command("ZADD", keys.FLOWS_ENDED, ended, run.flow_id)


def _keeping(config: Config, resources: Resources, folder: Path | None = None) -> Keeping:
    archive = Archive(resources.redis, folder) if folder else None
    exported = Exported(resources.redis, millis(config.exporter.hold))
    return Keeping(resources.redis, config.flow_engine, resources.objects, exported, archive)


def _archived(folder: Path, pattern: str = "*.jsonl.gz") -> list[Path]:
    return [path for path in folder.rglob(pattern) if path.is_file()]


async def _names(resources: Resources) -> set[str]:
    return {name.decode() for name in await resources.redis.commands.keys("*")}


async def _contents(journal: RedisJournal, run: Run) -> dict[int, list[bytes]]:
    return {view: [to_json(event) for event in await whole(journal, run, view)] for view in VIEWS}


@pytest.mark.req("R003-3.1.02", "R003-3.3.04", "R003-3.3.06")
async def test_old_runs_go_with_everything_that_is_kept_of_them(
    journal: RedisJournal, resources: Resources, kept: Config
) -> None:
    empty = await _names(resources)
    old = await _ended(journal, resources, "old", 11 * DAY)
    await resources.objects.put(kept.object_store.bucket, "flows/old/first/a.json", b"1")
    await resources.objects.put(kept.object_store.bucket, "flows/older/first/a.json", b"1")
    assert await _keeping(kept, resources).forget() == 1
    left = await _names(resources) - empty
    assert left <= {keys.FLOW_NAMES, keys.FLOWS_DUE, keys.FLOWS_WAKE, stream_of(old, VIEW_RUNS)}
    assert not await whole(journal, old, VIEW_RUNS)
    assert not await resources.redis.commands.zcard(keys.FLOWS_ENDED)
    assert not await resources.objects.exists(kept.object_store.bucket, "flows/old/first/a.json")
    assert await resources.objects.exists(kept.object_store.bucket, "flows/older/first/a.json")


@pytest.mark.req("R003-3.3.05")
async def test_what_ended_lately_and_what_runs_stays(journal: RedisJournal, resources: Resources, kept: Config) -> None:
    young = await _ended(journal, resources, "young", DAY)
    old = await _ended(journal, resources, "old", 11 * DAY)
    running = await begun(journal, "running")
    await journal.append(append_of(running, [start(running)], FlowState(), 0))
    before = {run: await _contents(journal, run) for run in (young, running)}
    await _keeping(kept, resources).run()
    for run, contents in before.items():
        after = await _contents(journal, run)
        indexed = [record for record in contents[VIEW_RUNS] if b'"old"' not in record]
        assert after == {**contents, VIEW_RUNS: indexed}
    assert not await whole(journal, old, VIEW_TIMELINE)


async def test_an_index_that_says_too_much_removes_no_run(
    journal: RedisJournal, resources: Resources, kept: Config
) -> None:
    running, young = await begun(journal, "running"), await _ended(journal, resources, "young", DAY)
    for run in (running, young):
        await resources.redis.commands.execute_command("ZADD", keys.FLOWS_ENDED, 1, run.flow_id)
    before = await _contents(journal, young)
    assert await _keeping(kept, resources).forget() == 0
    assert await _contents(journal, young) == before
    assert await journal.name_of("running") == "example-flow"


@pytest.mark.req("R003-3.3.03", "R003-3.1.02", "R003-3.3.05", "R003-3.3.06")
async def test_timelines_are_trimmed_and_what_pointed_there_goes(
    journal: RedisJournal, resources: Resources, kept: Config
) -> None:
    run = await _ended(journal, resources, "old", 3 * DAY)
    untrimmed = await _contents(journal, run)
    keeping = _keeping(kept, resources)
    assert await keeping.trim() == 1
    contents = await _contents(journal, run)
    assert contents[VIEW_TIMELINE] == untrimmed[VIEW_TIMELINE][-4:]
    # The line `three` is among the last four; its reference stays, and those of the others point nowhere.
    assert contents[VIEW_LOGS] == untrimmed[VIEW_LOGS][-1:]
    assert len(untrimmed[VIEW_LOGS]) == 3
    for view in (VIEW_SNAPSHOT, VIEW_STEPS, VIEW_RUNS):
        assert contents[view] == untrimmed[view]
    assert await keeping.trim() == 0
    assert await _keeping(kept, resources).trim() == 1
    assert await _contents(journal, run) == contents


async def test_a_timeline_can_be_trimmed_to_nothing(journal: RedisJournal, resources: Resources, kept: Config) -> None:
    kept.flow_engine.timeline_max_length = 0
    run = await _ended(journal, resources, "old", 3 * DAY)
    await _keeping(kept, resources).trim()
    assert not await whole(journal, run, VIEW_TIMELINE)
    assert not await whole(journal, run, VIEW_LOGS)
    assert await whole(journal, run, VIEW_SNAPSHOT)


async def test_more_references_than_one_look_are_compacted(
    journal: RedisJournal, resources: Resources, kept: Config
) -> None:
    run = await begun(journal)
    revision = (await journal.append(append_of(run, [start(run)], FlowState(), 0))).revision
    for batch in range(6):
        lines = [line(run, f"{batch} {n}") for n in range(200)]
        await journal.append(append_of(run, lines, FlowState(), None))
    await journal.append(append_of(run, [end(run)], state_of(await whole(journal, run, VIEW_TIMELINE)), revision))
    await _age(resources, run, 3 * DAY)
    await _keeping(kept, resources).trim()
    timeline = await whole(journal, run, VIEW_TIMELINE)
    assert len(timeline) == 4
    refs = [data_of(record)["ref"]["id"] for record in await whole(journal, run, VIEW_LOGS)]
    assert refs == [event.id for event in timeline[:3]]


async def test_what_is_not_in_the_lake_waits_for_the_exporter(
    journal: RedisJournal, resources: Resources, kept: Config
) -> None:
    runs = [await _ended(journal, resources, f"run-{days}", days * DAY) for days in (12, 11, 4, 3)]
    ends = [int(await resources.redis.commands.zscore(keys.FLOWS_ENDED, run.flow_id)) for run in runs]
    before = {run: await _contents(journal, run) for run in runs}
    exported, keeping = Exported(resources.redis, millis(kept.exporter.hold)), _keeping(kept, resources)
    await exported.note_many({keys.FLOWS_ENDED: ("0-0", 1)})
    await keeping.run()
    assert {run: await _contents(journal, run) for run in runs} == before
    await exported.note_many({keys.FLOWS_ENDED: (f"{ends[0]}-0", 1)})
    await keeping.run()
    assert {run: await _contents(journal, run) for run in runs} == before
    full = len(before[runs[0]][VIEW_TIMELINE])
    for position, lengths in ((0, [0, full, full, full]), (2, [0, 0, 4, full])):
        await exported.note_many({keys.FLOWS_ENDED: (f"{ends[position]}-1", 1)})
        await keeping.run()
        assert [len(await whole(journal, run, VIEW_TIMELINE)) for run in runs] == lengths
    silent = await resources.redis.now_ms() - millis(kept.exporter.hold)
    await resources.redis.commands.hset(keys.cursors(keys.FLOWS_ENDED), "exporter:seen", str(silent))
    await keeping.run()
    assert [len(await whole(journal, run, VIEW_TIMELINE)) for run in runs] == [0, 0, 4, 4]


@pytest.mark.parametrize("said", [True, False])
async def test_timelines_are_kept_as_long_as_runs_unless_told_otherwise(
    journal: RedisJournal, resources: Resources, kept: Config, said: bool
) -> None:
    if not said:
        kept.flow_engine.ClearField("timeline_retention")
    run = await _ended(journal, resources, "old", 9 * DAY)
    await _keeping(kept, resources).run()
    assert (len(await whole(journal, run, VIEW_TIMELINE)) == 4) is said


async def test_reading_what_was_trimmed_gives_less(journal: RedisJournal, resources: Resources, kept: Config) -> None:
    kept.flow_engine.timeline_max_length = 0
    run = await _ended(journal, resources, "old", 3 * DAY)
    reading = RunReading(resources.redis, resources.objects)
    logs, _ = await reading.step_logs(run, "first", 10)
    assert len(logs) == 3
    keeping = _keeping(kept, resources)
    await keeping.trim()
    assert await reading.step_logs(run, "first", 10) == ([], "")
    order = await read(resources.redis, "old")
    assert order is not None
    shown = await reading.whole(order)
    assert (shown.status, shown.logs_count) == ("completed", 3)
    await _age(resources, run, 11 * DAY)
    await keeping.forget()
    assert await read(resources.redis, "old") is None
    assert await reading.step_logs(run, "first", 10) == ([], "")
    assert await journal.read(run, VIEW_TIMELINE) == []
    assert (await reading.page(10))[0] == []


@pytest.mark.req("R003-3.3.04", "R003-3.3.09")
async def test_a_run_is_archived_once_before_it_is_trimmed(
    journal: RedisJournal, resources: Resources, kept: Config, tmp_path: Path
) -> None:
    run = await _ended(journal, resources, "old", 3 * DAY)
    other = await _ended(journal, resources, "other", DAY)
    contents = await _contents(journal, run)
    contents[VIEW_RUNS] = [record for record in contents[VIEW_RUNS] if b'"old"' in record]
    await _keeping(kept, resources, tmp_path).run()
    (path,) = _archived(tmp_path)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert lines == [record for view in VIEWS for record in contents[view]]
    assert [to_json(from_json(text)) for text in lines] == lines
    assert {json.loads(text)["stream"] for text in lines} == {stream_of(run, view) for view in VIEWS}
    assert len(await whole(journal, run, VIEW_TIMELINE)) == 4
    # What was whole when it was archived is not replaced by what is left of it.
    stamp = path.stat().st_mtime_ns
    await _age(resources, run, 11 * DAY)
    await _keeping(kept, resources, tmp_path).run()
    assert not await whole(journal, run, VIEW_TIMELINE)
    assert path.stat().st_mtime_ns == stamp
    assert _archived(tmp_path) == [path]
    assert await whole(journal, other, VIEW_TIMELINE)


async def test_an_archive_that_a_crash_cut_off_is_written_again(
    journal: RedisJournal, resources: Resources, kept: Config, tmp_path: Path
) -> None:
    run = await _ended(journal, resources, "old", 11 * DAY)
    contents = await _contents(journal, run)
    archive = Archive(resources.redis, tmp_path)
    first = await archive.write(run, await resources.redis.now_ms() - 11 * DAY, [])
    whole_text = first.read_bytes()
    first.write_bytes(whole_text[:40])  # no name says so, but a disk may have done it
    await _keeping(kept, resources, tmp_path).forget()
    written = _archived(tmp_path, "*")
    (path,) = [path for path in written if path.suffix == ".gz" and path.stat().st_size > 40]
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert lines == [record for view in VIEWS for record in contents[view]]
    assert not [path for path in written if path.suffix == ".draft"]


async def test_a_crash_between_archive_and_trimming_is_made_good(
    journal: RedisJournal, resources: Resources, kept: Config, tmp_path: Path
) -> None:
    run = await _ended(journal, resources, "old", 3 * DAY)
    (entry,) = await whole(journal, run, VIEW_RUNS)
    ended_ms = int(await resources.redis.commands.zscore(keys.FLOWS_ENDED, "old"))
    path = await Archive(resources.redis, tmp_path).write(run, ended_ms, [entry.id])
    written = path.read_bytes()
    await _keeping(kept, resources, tmp_path).trim()
    assert _archived(tmp_path, "*") == [path]
    assert path.read_bytes() == written
    assert len(gzip.decompress(written).splitlines()) > 4
    assert len(await whole(journal, run, VIEW_TIMELINE)) == 4


async def test_nothing_goes_that_cannot_be_archived(
    journal: RedisJournal, resources: Resources, kept: Config, tmp_path: Path
) -> None:
    run = await _ended(journal, resources, "old", 11 * DAY)
    contents = await _contents(journal, run)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    keeping = _keeping(kept, resources, in_the_way)
    for work in (keeping.trim, keeping.forget):
        with pytest.raises(OSError, match="file"):
            await work()
    assert await _contents(journal, run) == contents


async def test_foreign_entries_and_keys_hold_up_nobody(
    journal: RedisJournal, resources: Resources, kept: Config, tmp_path: Path
) -> None:
    broken = await _ended(journal, resources, "broken", 11 * DAY)
    strange = await _ended(journal, resources, "strange", 11 * DAY)
    old = await _ended(journal, resources, "old", 11 * DAY)
    commands = resources.redis.commands
    await commands.execute_command("SET", keys.flow_timeline(broken.flow_id), "text")
    await commands.execute_command("SET", keys.flow_snapshot(broken.flow_name, broken.flow_id), "text")
    await commands.execute_command("XADD", keys.flow_timeline(strange.flow_id), "*", "a", b"\xff")
    await _keeping(kept, resources, tmp_path).run()
    assert not await commands.zcard(keys.FLOWS_ENDED)
    assert not await whole(journal, old, VIEW_TIMELINE)
    (path,) = _archived(tmp_path, "strange.jsonl.gz")
    assert [text for text in gzip.decompress(path.read_bytes()).splitlines() if b'"fields":' in text]
    # The entry that could not be found by the time of the start goes with the walk over the index.
    assert await whole(journal, old, VIEW_RUNS)
    await IndexKeeping(resources.redis).run()
    assert not await whole(journal, old, VIEW_RUNS)


@pytest.mark.req("R003-3.3.06", "R003-3.3.08")
async def test_an_index_is_rid_of_duplicates_and_of_runs_that_are_gone(
    journal: RedisJournal, resources: Resources
) -> None:
    runs = [await begun(journal, f"run-{n}") for n in range(30)]
    for run in runs:
        await journal.append(append_of(run, [start(run)], FlowState(), 0))
    records = await whole(journal, runs[0], VIEW_RUNS)
    commands, stream = resources.redis.commands, stream_of(runs[0], VIEW_RUNS)
    for record in records[:5]:
        await commands.execute_command(
            *("XADD", stream, "*", "kind", record.kind, "subject", "", "data", record.data, "meta", "", "v", "1")
        )
    await commands.execute_command("XADD", stream, "*", "a", "b")
    await commands.execute_command("DEL", keys.flow("run-7"))
    keeping = IndexKeeping(resources.redis)
    assert await keeping.run() == 7
    assert await keeping.run() == 0
    assert await whole(journal, runs[0], VIEW_RUNS) == [record for n, record in enumerate(records) if n != 7]


async def test_a_long_index_is_walked_in_pages(
    journal: RedisJournal, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.journal.run_entries.PAGE", 4)
    monkeypatch.setattr("flows.journal.run_entries.PAGES", 2)
    runs = [await begun(journal, f"run-{n:02}") for n in range(20)]
    for run in runs:
        await journal.append(append_of(run, [start(run)], FlowState(), 0))
        await resources.redis.commands.execute_command("DEL", keys.flow(run.flow_id))
    keeping = IndexKeeping(resources.redis)
    assert [await keeping.run() for _ in range(4)] == [8, 8, 4, 0]
    assert not await whole(journal, runs[0], VIEW_RUNS)


async def test_a_run_that_is_started_anew_is_listed_once(journal: RedisJournal, resources: Resources) -> None:
    run = await begun(journal)
    await journal.append(append_of(run, [start(run)], FlowState(), 0))
    await resources.redis.commands.execute_command("DEL", keys.flow(run.flow_id), keys.flow_timeline(run.flow_id))
    await begun(journal)
    appended = await journal.append(append_of(run, [start(run)], FlowState(), 0))
    assert await IndexKeeping(resources.redis).run() == 1
    (left,) = await whole(journal, run, VIEW_RUNS)
    assert data_of(left)["sourceId"] == appended.events[0].id


async def test_the_operator_role_keeps_the_runs(
    journal: RedisJournal, resources: Resources, kept: Config, tmp_path: Path
) -> None:
    kept.flow_engine.archive_dir = str(tmp_path / "archive")
    kept.flow_engine.tidy_interval.FromMilliseconds(20)
    old = await _ended(journal, resources, "old", 11 * DAY)
    running = await begun(journal, "running")
    await journal.append(
        append_of(running, [start(running), of_step(running, kinds.STEP_SCHEDULED, 1)], FlowState(), 0)
    )
    service = await bootstrap.build(kept, resources)
    await service.start()
    try:

        async def gone() -> bool:
            indexed = [data_of(record)["id"] for record in await whole(journal, old, VIEW_RUNS)]
            return not await whole(journal, old, VIEW_TIMELINE) and indexed == ["running"]

        await eventually(gone)
    finally:
        await service.stop()
    assert len(_archived(tmp_path)) == 1
