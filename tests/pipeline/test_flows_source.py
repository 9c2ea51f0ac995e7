"""Runs as the exporter reads them: whole, once they have ended, each once, whatever the clock and other hands do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE
from flows.journal.redis_journal import RedisJournal
from flows.model.codec import event_of
from flows.model.types import FlowState, Run
from kernel.errors import FetchboxError
from kernel.log.offsets import START
from kernel.redis import keys
from kernel.service.resources import Resources
from pipeline.export.chain import Chain
from pipeline.export.flows_source import FlowsSource
from pipeline.export.source import SourcePage
from pipeline.lake.layout import day_of
from pipeline.lake.store import LakeStore
from tests.examples import most
from tests.flows.journal_rig import append_of, begun, end, line, start, started, whole
from tests.pipeline.export_rig import drained

DAY = 86_400_000
NOON = 20_000 * DAY + DAY // 2
MUCH = 1 << 40


@pytest.fixture
async def journal(resources: Resources, config: Config) -> AsyncIterator[RedisJournal]:
    made = RedisJournal(resources.redis, config)
    yield made
    await made.close()


@pytest.fixture
def source(resources: Resources, config: Config) -> FlowsSource:
    return FlowsSource(resources.redis, config)


async def _end(journal: RedisJournal, flow_id: str, lines: int = 0) -> Run:
    run = await started(journal, flow_id)
    if lines:
        events = [line(run, f"{number}") for number in range(lines)]
        await journal.append(append_of(run, events, FlowState(), None))
    await journal.append(append_of(run, [end(run)], FlowState(), 1))
    return run


async def _place(resources: Resources, flow_id: str, ms: int, events: int = 2) -> None:
    """A run that ended at a time, as the order and the index of ends have it."""
    commands = resources.redis.commands
    await commands.hset(keys.flow(flow_id), mapping={"rev": "1", "name": "placed", "tenant": "acme", "ended": str(ms)})
    for number in range(events):
        fields = {"kind": "runner.log", "subject": "", "data": str(number), "meta": "", "v": "1"}
        await commands.xadd(keys.flow_timeline(flow_id), fields)
    await commands.zadd(keys.FLOWS_ENDED, {flow_id: ms})


async def _ends(resources: Resources) -> dict[str, int]:
    found = await resources.redis.commands.zrange(keys.FLOWS_ENDED, 0, -1, withscores=True)
    return {flow_id.decode(): int(ms) for flow_id, ms in found}


async def _all(
    source: FlowsSource, after: str = START, *, max_rows: int = 1000, max_bytes: int = MUCH
) -> tuple[list[SourcePage], str]:
    """Every page with rows, and how far they go."""
    pages = []
    while (page := await source.read(after, max_rows=max_rows, max_bytes=max_bytes)).rows:
        pages.append(page)
        after = page.last
    assert page.ended
    return pages, after


def _flows(pages: Sequence[SourcePage]) -> list[str]:
    return list(dict.fromkeys(row.extra["flow_id"] for page in pages for row in page.rows))


@pytest.mark.req("R003-3.3.09")
async def test_a_run_is_read_whole_once_it_has_ended(journal: RedisJournal, source: FlowsSource) -> None:
    done, running = await _end(journal, "done", lines=15), await started(journal, "running")
    (page,), position = await _all(source)
    events = await whole(journal, done, VIEW_TIMELINE)
    assert [event_of(keys.flow_timeline("done"), row.id, row.fields) for row in page.rows] == events
    assert {(row.partition, row.extra["flow_name"], row.extra["tenant"]) for row in page.rows} == {
        (0, "example-flow", "")
    }
    assert page.first == page.last == position
    assert page.bytes == sum(len(k) + len(v) for row in page.rows for k, v in row.fields.items())
    assert not (await source.look(position)).oldest
    await journal.append(append_of(running, [end(running)], FlowState(), 1))
    look = await source.look(position)
    (page,), last = await _all(source, position)
    assert _flows([page]) == ["running"]
    assert look.oldest == look.last == page.first == last
    assert look.kept
    assert look.exists
    assert len(look.server) == 40
    assert await source.ids(START, last) == []


async def test_a_long_timeline_is_read_to_its_end(journal: RedisJournal, source: FlowsSource, config: Config) -> None:
    config.flow_engine.max_logs = 1000
    journal = RedisJournal(source._clients, config)
    run = await begun(journal, "long")
    await journal.append(append_of(run, [start(run)], FlowState(), 0))
    for batch in range(3):
        lines = [line(run, f"{batch} {number}") for number in range(100)]
        await journal.append(append_of(run, lines, FlowState(), None))
    await journal.append(append_of(run, [end(run)], FlowState(), 1))
    (page,), _ = await _all(source, max_rows=10)
    assert [row.id for row in page.rows] == [event.id for event in await whole(journal, run, VIEW_TIMELINE)]
    assert len(page.rows) == 302
    await journal.close()


async def test_ends_have_times_of_their_own_that_never_go_back(
    journal: RedisJournal, resources: Resources, source: FlowsSource
) -> None:
    """A clock that went back an hour, and a hundred ends at once."""
    ahead = await resources.redis.now_ms() + 3_600_000
    await _place(resources, "before", ahead)
    await asyncio.gather(*(_end(journal, f"run-{number}") for number in range(100)))
    ends = await _ends(resources)
    assert sorted(ends.values()) == list(range(ahead, ahead + 101))
    for flow_id, ms in ends.items():
        assert int(await resources.redis.commands.hget(keys.flow(flow_id), "ended")) == ms
    pages, _ = await _all(source, max_rows=7)
    assert _flows(pages) == sorted(ends, key=lambda flow_id: ends[flow_id])


async def test_runs_that_end_while_others_read_are_each_read_once(
    journal: RedisJournal, resources: Resources, source: FlowsSource
) -> None:
    read: list[str] = []

    async def reading() -> None:
        after = START
        while len(read) < 60:
            page = await source.read(after, max_rows=9, max_bytes=MUCH)
            read.extend(row.extra["flow_id"] for row in page.rows if row.fields["kind"] == b"flow.start")
            after = page.last

    async def ending(worker: int) -> None:
        for number in range(20):
            await _end(journal, f"run-{worker}-{number}")

    async with asyncio.timeout(60):
        await asyncio.gather(reading(), *(ending(worker) for worker in range(3)))
    assert len(set(read)) == len(read) == 60


@settings(max_examples=most(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    runs=st.lists(st.tuples(st.integers(0, 3 * DAY), st.integers(0, 6)), max_size=30),
    max_rows=st.integers(1, 12),
    max_bytes=st.integers(1, 200),
)
async def test_pages_hold_whole_runs_of_one_day_within_the_limits(
    resources: Resources, source: FlowsSource, runs: list[tuple[int, int]], max_rows: int, max_bytes: int
) -> None:
    """Older versions let several runs end in one ms; those stay together."""
    await resources.redis.commands.flushdb()
    for number, (ms, events) in enumerate(runs):
        await _place(resources, f"run-{number}", NOON + ms // 10_000_000 * 10_000_000, events)
    ends = await _ends(resources)
    pages, _ = await _all(source, max_rows=max_rows, max_bytes=max_bytes)
    expected = [flow_id for flow_id, _ in sorted(ends.items(), key=lambda one: (one[1], one[0]))]
    assert _flows(pages) == [flow_id for flow_id in expected if runs[int(flow_id[4:])][1]]
    assert sum(len(page.rows) for page in pages) == sum(events for _, events in runs)
    for page in pages:
        of_page = [ends[flow_id] for flow_id in _flows([page])]
        assert len({day_of(ms) for ms in of_page}) == 1
        assert (page.first, parse(page.first)) == (f"{of_page[0]}-1", of_page[0])
        if len(set(of_page)) > 1:
            assert len(page.rows) <= max_rows
            assert page.bytes <= max_bytes


def parse(position: str) -> int:
    return int(position.partition("-")[0])


async def test_a_range_can_be_read_again(resources: Resources, source: FlowsSource) -> None:
    for number in range(5):
        await _place(resources, f"run-{number}", NOON + number)
    page = await source.read(f"{NOON}-1", max_rows=100, max_bytes=MUCH, until=f"{NOON + 2}-1")
    assert _flows([page]) == ["run-1", "run-2"]
    assert page.last == f"{NOON + 2}-1"
    assert not page.ended
    page = await source.read(f"{NOON}-0", max_rows=1, max_bytes=MUCH)
    assert _flows([page]) == ["run-0"]


async def test_foreign_and_empty_timelines_hold_up_nobody(
    resources: Resources, source: FlowsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.export.flows_source._RUNS", 2)
    commands = resources.redis.commands
    for number in range(8):
        await _place(resources, f"run-{number}", NOON + number * DAY // 4, events=1)
    for number in (0, 1, 2, 3, 5):
        await commands.delete(keys.flow_timeline(f"run-{number}"))
    await commands.set(keys.flow_timeline("run-1"), "text")
    await commands.delete(keys.flow("run-4"))
    await commands.set(keys.flow("run-6"), "text")
    assert (await source.look(START)).oldest == f"{NOON + DAY}-1"
    pages, position = await _all(source)
    assert _flows(pages) == ["run-4", "run-6", "run-7"]
    assert [row.extra["flow_name"] for page in pages for row in page.rows] == ["", "", "placed"]
    await _place(resources, "nothing", NOON + 2 * DAY, events=0)
    look = await source.look(position)
    assert not look.oldest
    assert look.last == f"{NOON + 2 * DAY}-1"


async def test_ends_that_a_failover_lost_are_noticed(resources: Resources, source: FlowsSource, config: Config) -> None:
    """The last exported run is no longer among those that ended, although nothing has removed runs of its age."""
    now = await resources.redis.now_ms()
    old = now - int(config.flow_engine.retention.seconds * 1000) - 60_000
    for name, ms in (("old", old), ("first", now - 2000), ("last", now - 1000)):
        await _place(resources, name, ms)
    assert (await source.look(START)).kept
    assert (await source.look(f"{now - 1000}-1")).kept
    await resources.redis.commands.zrem(keys.FLOWS_ENDED, "last", "old")
    look = await source.look(f"{now - 1000}-1")
    assert not look.kept
    assert look.last == f"{now - 2000}-1"
    # Neither what retention removes is lost, nor is a position that is only a time.
    assert (await source.look(f"{old}-1")).kept
    assert (await source.look(f"{now - 601_000}-0")).kept
    await resources.redis.commands.delete(keys.FLOWS_ENDED)
    assert not (await source.look(f"{now - 1000}-1")).kept
    assert (await source.look(f"{old}-1")).last == f"{old}-1"


async def test_long_timelines_are_not_read_before_there_is_room_for_them(
    resources: Resources, source: FlowsSource
) -> None:
    for number in range(8):
        await _place(resources, f"run-{number}", NOON + number, events=250)
    before = await _calls(resources)
    page = await source.read(START, max_rows=260, max_bytes=MUCH)
    assert (_flows([page]), len(page.rows), page.ended) == (["run-0"], 250, False)
    # The beginnings of all, and the rest of the one that was taken and of the one that did not fit.
    assert await _calls(resources) - before == 8 + 2 + 2
    assert len(_flows((await _all(source, max_rows=260))[0])) == 8


async def _calls(resources: Resources) -> int:
    """How often Redis was asked for a range of a stream."""
    stats = await resources.redis.commands.execute_command("INFO", "commandstats")
    return int(stats["cmdstat_xrange"]["calls"]) if "cmdstat_xrange" in stats else 0


@pytest.mark.parametrize("command", ["xlen", "xrange", "hmget", "zcount"])
async def test_runs_that_cannot_be_read_just_now_are_not_passed_over(
    journal: RedisJournal, resources: Resources, source: FlowsSource, command: str
) -> None:
    await _end(journal, "done")
    await resources.redis.commands.execute_command("ACL SETUSER", "default", f"-{command}")
    try:
        with pytest.raises(FetchboxError, match="UNAVAILABLE"):
            await source.read(START, max_rows=1000, max_bytes=MUCH)
    finally:
        await resources.redis.commands.execute_command("ACL SETUSER", "default", "+@all")
    assert _flows((await _all(source))[0]) == ["done"]


async def _exported(lake: LakeStore) -> list[tuple[int, str, str]]:
    """Epoch, run and kind of every row in the lake."""
    found: list[tuple[int, str, str]] = []
    for stored in await lake.segments("flows"):
        body = await lake.objects.get(lake.bucket, stored.key)
        assert body is not None
        rows = pq.read_table(BytesIO(body)).select(["flow_id", "kind"]).to_pylist()
        found += [(stored.segment.epoch, row["flow_id"], row["kind"]) for row in rows]
    return found


async def test_runs_come_into_the_lake_and_lost_ends_begin_an_epoch(
    journal: RedisJournal, resources: Resources, source: FlowsSource, config: Config
) -> None:
    config.exporter.max_rows = 4
    lake = LakeStore(resources.objects, config)
    runs = [f"run-{number}" for number in range(6)]
    for flow_id in runs[:5]:
        await _end(journal, flow_id)
    chain = await drained(Chain(source, lake, config.exporter))
    assert await _exported(lake) == [(1, run, kind) for run in runs[:5] for kind in ("flow.start", "flow.complete")]
    assert len(await lake.segments("flows")) == 3
    assert chain.state is not None
    last = (await _ends(resources))["run-4"]
    assert chain.state.position == f"{last}-1"
    # A replica that had not heard of the last end takes over; it is told again, and so is another.
    await resources.redis.commands.zrem(keys.FLOWS_ENDED, "run-4")
    await resources.redis.commands.hdel(keys.flow("run-4"), "ended")
    await _end(journal, "run-5")
    chain = await drained(Chain(source, lake, config.exporter))
    (marker,) = await lake.markers("flows")
    assert (marker.reason, marker.after, marker.epoch) == ("rewritten", f"{last}-1", 2)
    kept = [*runs[:4], "run-5"]
    assert [row for row in await _exported(lake) if row[0] == 2] == [
        (2, run, kind) for run in kept for kind in ("flow.start", "flow.complete")
    ]
    assert await drained(Chain(source, lake, config.exporter))
    assert len(await lake.markers("flows")) == 1
