"""The journal on Redis: time, lost replies, memory, and what it leaves in the server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from journal_rig import agree, append_of, begun, end, eventually, line, redis_config, start, started, story, tell, whole

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_SNAPSHOT, VIEW_TIMELINE, Event
from flows.journal.journal import VIEWS, Append, stream_of
from flows.journal.redis_journal import RedisJournal
from flows.model.events import data_of
from flows.model.order import read, read_many
from flows.model.state import state_of
from flows.model.types import Appended, ConflictError, FlowState, Patch, RunGoneError, Write
from kernel.errors import FetchboxError
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.kernel.cutting import cutting

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.fixture
def settings(redis_server: str) -> Config:
    return redis_config(redis_server)


@pytest.fixture
async def clients(settings: Config) -> AsyncIterator[RedisClients]:
    opened = await RedisClients.open(settings.redis)
    yield opened
    await opened.close()


@pytest.fixture
async def journal(clients: RedisClients, settings: Config) -> AsyncIterator[RedisJournal]:
    made = RedisJournal(clients, settings)
    yield made
    await made.close()


def _moments() -> list[int]:
    """Times in ms: any ones, and those around ends of months and years of every kind, in the future of this test."""
    rng = random.Random(3)
    first, last = ((at - _EPOCH) // timedelta(milliseconds=1) for at in (datetime(2100, 1, 1, tzinfo=UTC), _LAST))
    found = [rng.randint(first, last) for _ in range(1500)]
    for year in (2100, 2104, 2196, 2199, 2200, 2400, 2401, 2800, 3000, 4000, 9600, 9999):
        for month in range(1, 13):
            midnight = datetime(year, month, 1, tzinfo=UTC)
            found += [(midnight - _EPOCH) // timedelta(milliseconds=1) + shift for shift in (-1, 0) if year > 2100]
    return found


async def test_the_time_of_a_patch_is_right_on_any_day(journal: RedisJournal, clients: RedisClients) -> None:
    """A timeline whose last id lies in the future goes on from there, so its time can be chosen."""
    moments = _moments()
    runs = [await begun(journal, f"run-{n}") for n in range(len(moments))]
    async with clients.commands.pipeline(transaction=False) as batch:
        for run, ms in zip(runs, moments, strict=True):
            batch.execute_command("XADD", keys.flow_timeline(run.flow_id), f"{ms}-0", "kind", "x")
        await batch.execute()
    patch = Patch(VIEW_SNAPSHOT, "flow.snapshot.patch", b'{"at":"<ts>","id":"<id>","then":"<ts>"}')
    outcomes = await journal.append_many([Append(run, (Write(start(run), (patch,)),), 0) for run in runs])
    for run, ms, outcome in zip(runs, moments, outcomes, strict=True):
        expected = (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert isinstance(outcome, Appended)
        assert outcome.events[0].ts == expected
        (stored,) = await journal.read(run, VIEW_SNAPSHOT)
        assert data_of(stored) == {"at": expected, "then": expected, "id": f"{ms}-1"}


@pytest.mark.req("R003-3.01", "R003-3.1.01")
async def test_five_streams_and_no_more_are_stored_of_a_run(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    before = set(await clients.commands.keys("*"))
    await tell(journal, run, story(run))
    made = {name.decode() for name in set(await clients.commands.keys("*")) - before}
    assert made == {stream_of(run, view) for view in VIEWS} | {keys.FLOWS_ENDED}
    for view in VIEWS:
        stream = stream_of(run, view)
        assert await clients.commands.type(stream) == b"stream"
        ((_, rows),) = await clients.commands.xread({stream: "0-0"})
        assert [entry_id.decode() for entry_id, _ in rows] == [event.id for event in await whole(journal, run, view)]
        for _, held in rows:
            assert list(held) == [b"kind", b"subject", b"data", b"meta", b"v"]


@pytest.mark.req("R003-3.3.08")
async def test_a_lost_reply_doubles_nothing(settings: Config, clients: RedisClients, journal: RedisJournal) -> None:
    async with cutting(settings.redis.addr) as proxy:
        cut = redis_config(proxy.addr)
        far = await RedisClients.open(cut.redis)
        behind = RedisJournal(far, cut)
        run = await begun(behind)
        begin = append_of(run, [start(run)], FlowState(), 0)
        proxy.lose("flow.start")
        with pytest.raises(ConflictError):
            await behind.append(begin)
        proxy.lose("runner.log", 2)
        appended = await behind.append(append_of(run, [line(run, "one"), line(run, "two")], FlowState(), None))
        assert proxy.cuts == 3
        await behind.close()
        await far.close()
    timeline = await whole(journal, run, VIEW_TIMELINE)
    assert [event.kind for event in timeline] == ["flow.start", "runner.log", "runner.log"]
    assert list(appended.events) == timeline[1:]
    await agree(journal, run)


async def test_a_server_that_is_away_is_told_for_each_run(settings: Config, clients: RedisClients) -> None:
    async with cutting(settings.redis.addr) as proxy:
        cut = redis_config(proxy.addr)
        cut.redis.max_retries = 1
        far = await RedisClients.open(cut.redis)
        behind = RedisJournal(far, cut)
        runs = [await begun(behind, f"run-{n}") for n in range(3)]
        proxy.lose("flow.start", 100)
        outcomes = await behind.append_many([append_of(run, [start(run)], FlowState(), 0) for run in runs])
        assert [isinstance(outcome, FetchboxError) for outcome in outcomes] == [True] * 3
        await behind.close()
        await far.close()


async def test_of_many_writers_one_gets_through_each_fence(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    appends = [append_of(run, [start(run)], FlowState(), 0) for _ in range(10)]
    outcomes = await asyncio.gather(*(journal.append(append) for append in appends), return_exceptions=True)
    assert sum(isinstance(outcome, Appended) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 9
    order = await read(clients, run.flow_id)
    assert order is not None
    assert order.revision == 1


async def test_an_end_is_entered_where_retention_looks(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    before = await clients.now_ms()
    await tell(journal, run, story(run))
    order = await read(clients, run.flow_id)
    assert order is not None
    assert order.ended_ms is not None
    assert before <= order.ended_ms <= await clients.now_ms()
    assert await clients.commands.zscore(keys.FLOWS_ENDED, run.flow_id) == order.ended_ms
    assert order.logs == 3
    assert await read_many(clients, ["none", run.flow_id]) == [None, order]


async def test_an_append_wakes_an_engine_where_it_is_told_to(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    commands = clients.commands
    assert await commands.zscore(keys.FLOWS_DUE, run.flow_id) is not None
    assert await commands.xlen(keys.FLOWS_WAKE) == 1
    await commands.delete(keys.FLOWS_DUE)
    quiet = append_of(run, [start(run)], FlowState(), 0)
    await journal.append(quiet)
    assert await commands.zscore(keys.FLOWS_DUE, run.flow_id) is None
    woken = (await commands.xinfo_stream(keys.FLOWS_WAKE))["last-generated-id"]
    before = await clients.now_ms()
    await journal.append(Append(run, (Write(end(run)),), 1, wakes=True))
    assert before <= await commands.zscore(keys.FLOWS_DUE, run.flow_id) <= await clients.now_ms()
    assert (await commands.xinfo_stream(keys.FLOWS_WAKE))["last-generated-id"] > woken
    assert await commands.xlen(keys.FLOWS_WAKE) == 1


async def test_fields_that_are_done_with_go_in_the_same_step(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    await clients.commands.hset(keys.flow(run.flow_id), mapping={"hit:a": b"{}", "hit:b": b"{}"})
    with pytest.raises(ConflictError):
        await journal.append(Append(run, (Write(start(run)),), 5, clears=("hit:a", "hit:b")))
    order = await read(clients, run.flow_id)
    assert order is not None
    assert set(order.hits) == {"a", "b"}
    await journal.append(Append(run, (Write(start(run)),), 0, clears=("hit:a",)))
    order = await read(clients, run.flow_id)
    assert order is not None
    assert set(order.hits) == {"b"}


async def test_a_foreign_key_stops_an_append_before_anything_is_written(
    journal: RedisJournal, clients: RedisClients
) -> None:
    run = await begun(journal)
    for name in (keys.flow_logs(run.key), keys.flow_early(run.key)):
        await clients.commands.set(name, "text")
        with pytest.raises(FetchboxError, match="holds something else"):
            await journal.append(append_of(run, [start(run)], FlowState(), 0))
        assert not await clients.commands.exists(keys.flow_timeline(run.flow_id))
        await clients.commands.delete(name)
    await journal.append(append_of(run, [start(run)], FlowState(), 0))


async def test_what_somebody_else_has_put_into_a_timeline_is_passed_over(
    journal: RedisJournal, clients: RedisClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.journal.redis_journal._PAGE", 3)
    run, told = await begun(journal), list[Event]()
    state, revision = FlowState(), 0
    for events in story(run):
        appended = await journal.append(append_of(run, events, state, revision))
        revision = appended.revision
        told += appended.events
        state = state_of(told)
        for foreign in ({"a": "b"}, {"kind": b"\xff"}, {b"\xff": "c"}) * 2:
            await clients.commands.xadd(keys.flow_timeline(run.flow_id), foreign)
    assert await whole(journal, run, VIEW_TIMELINE) == told
    assert await journal.read(run, VIEW_TIMELINE, limit=5) == told[:5]
    for after in (0, 5):
        found = await journal.load({run.flow_id: told[after].id})
        assert found[run.flow_id][1] == told[after + 1 :]


@pytest.mark.fault(47)
async def test_accepted_runs_go_on_while_memory_is_short(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    try:
        await clients.commands.config_set("maxmemory", "1")
        with pytest.raises(FetchboxError):
            await begun(journal, "another")
        await tell(journal, run, story(run))
        await agree(journal, run)
    finally:
        await clients.commands.config_set("maxmemory", "0")


async def test_orders_and_timelines_of_many_runs_are_read_at_once(journal: RedisJournal, clients: RedisClients) -> None:
    told = await begun(journal, "told")
    await tell(journal, told, story(told))
    long = await started(journal, "long")
    for _ in range(5):
        lines = [line(long, f"{n}") for n in range(249)]
        await journal.append(append_of(long, lines, FlowState(), None))
    timeline = await whole(journal, told, VIEW_TIMELINE)
    found = await journal.load({"told": timeline[4].id, "none": "0-0", "long": "0-0"})
    assert set(found) == {"told", "long"}
    order, events = found["told"]
    assert events == timeline[5:]
    assert order == await read(clients, "told")
    assert found["long"][1] == await whole(journal, long, VIEW_TIMELINE)


async def test_who_waits_for_a_stream_gets_the_end_of_a_run(journal: RedisJournal, clients: RedisClients) -> None:
    run = await begun(journal)
    await tell(journal, run, story(run)[:-1])
    timeline = stream_of(run, VIEW_TIMELINE)
    last = (await whole(journal, run, VIEW_TIMELINE))[-1].id
    waiting = asyncio.create_task(clients.blocking.xread({timeline: last}, block=20_000))

    async def waits() -> bool:
        return int((await clients.commands.info("clients"))["blocked_clients"]) > 0

    await eventually(waits)
    order = await read(clients, run.flow_id)
    assert order is not None
    state = state_of(await whole(journal, run, VIEW_TIMELINE))
    appended = await journal.append(append_of(run, story(run)[-1], state, order.revision))
    ((_, rows),) = await waiting
    assert [entry_id.decode() for entry_id, _ in rows] == [event.id for event in appended.events]


async def test_a_batch_is_remembered_among_many(journal: RedisJournal, clients: RedisClients) -> None:
    run = await started(journal)
    for n in range(100):
        batch = append_of(run, [line(run, f"{n}")], FlowState(), None)
        assert await journal.append(batch) == await journal.append(batch)
    assert len(await whole(journal, run, VIEW_LOGS)) == 100
    assert len(await clients.commands.hget(keys.flow(run.flow_id), "logged")) < 1024
    await journal.append(append_of(run, [end(run)], FlowState(), 1))
    assert not await clients.commands.hexists(keys.flow(run.flow_id), "logged")
    with pytest.raises(RunGoneError):
        await journal.append(batch)
