"""The Store Bus: tails of one stream, from wherever a client wants, while others write it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_rig import append_of, end, line, story
from tail_rig import PATIENCE, Reader, TailRig, reading

from cli.embedded.valkey import Valkey
from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_RUNS, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_TIMELINE, Event, View
from flows.journal import entries
from flows.journal.journal import stream_of
from flows.model import kinds
from flows.model.state import state_of
from flows.model.types import Context, Run
from flows.publishing.bus import InternalBus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from flows.tails import stream_tail
from flows.tails.stream_tail import TailClient
from kernel.log.offsets import parse_id
from kernel.log.redis import RedisLog
from kernel.redis import keys
from kernel.watch import feed
from tests.examples import most

VIEWS = (VIEW_TIMELINE, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_LOGS)


@pytest.fixture
async def rig(redis_server: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TailRig]:
    monkeypatch.setattr(stream_tail, "IDLE_SECONDS", 600.0)  # nothing here comes by a look after a long silence
    async with TailRig.at(redis_server) as opened:
        yield opened


def tail(rig: TailRig, run: Run, view: View.ValueType = VIEW_TIMELINE, **wanted: object) -> partial:
    return partial(rig.bus.tail, run, view, **wanted)


def ids(events: Sequence[Event]) -> list[str]:
    return [event.id for event in events]


@pytest.mark.req("R003-1.3.06", "R003-1.3.08", "R003-1.3.09", "R003-2.4.04", "R003-2.4.05")
@pytest.mark.parametrize("view", VIEWS)
async def test_a_tail_has_everything_once_and_ends_behind_the_run(rig: TailRig, view: View.ValueType) -> None:
    """Four clients: one before the first event, one in the middle, one at the end, one behind it."""
    run = await rig.begin()
    async with contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(reading(tail(rig, run, view)))]
        await readers[0].live()
        writing = asyncio.create_task(rig.go_on(run))
        readers.append(await stack.enter_async_context(reading(tail(rig, run, view))))
        await writing
        readers.append(await stack.enter_async_context(reading(tail(rig, run, view))))
        found = [await reader.end() for reader in readers]
    assert found == [await rig.records(run, view)] * 3
    stream = stream_of(run, view)
    for frame in readers[0].frames:
        assert (frame.v, frame.stream, frame.event) == (1, stream, frame.record.kind)
        assert frame.record.id
        assert frame.record.stream == stream
    assert rig.subscribers == 0


async def test_a_tail_whose_read_finds_redis_away_waits_for_it(tmp_path: Path) -> None:
    server = Valkey(tmp_path)
    server.start()

    async def begun() -> None:
        """Nobody waits for it."""

    async with TailRig.at(server.addr) as rig:
        run = await rig.begin()
        frames = rig.bus.tail(run, VIEW_TIMELINE, TailClient(lambda: None, begun))
        assert (await anext(frames)).event == "flow.start"
        server.kill9()
        following = asyncio.ensure_future(anext(frames))
        await asyncio.wait({following}, timeout=3)  # in which one that gives up would end
        assert not following.done()
        server.start()
        await rig.go_on(run)
        async with asyncio.timeout(PATIENCE):
            assert (await following).event != "flow.start"
        await frames.aclose()
    server.stop()


@pytest.mark.req("R003-2.4.03", "R003-3.4.04")
async def test_the_last_records_can_be_asked_for(rig: TailRig) -> None:
    run = await rig.begin()
    await rig.write(run, [[line(run, f"line {number}") for number in range(7)]], 1)
    there = await rig.records(run)
    logs = [event for event in there if event.kind == kinds.LOG]
    async with contextlib.AsyncExitStack() as stack:
        cases: list[tuple[list[Event], Reader]] = []
        for last in (0, 1, 3, len(there), 10_000):
            wanted = tail(rig, run, last=last)
            cases.append(
                (there[len(there) - min(last, len(there)) :], await stack.enter_async_context(reading(wanted)))
            )
            wanted = tail(rig, run, last=last, patterns=["runner.*"])
            cases.append((logs[len(logs) - min(last, len(logs)) :], await stack.enter_async_context(reading(wanted))))
        for expected, reader in cases:
            await reader.live()
            assert reader.events == expected, "the past comes before the tail is live"
        await rig.write(run, [[end(run)]], 1)
        (newest,) = (await rig.records(run))[len(there) :]
        for number, (expected, reader) in enumerate(cases):
            assert await reader.end() == expected + ([newest] if number % 2 == 0 else [])


async def test_a_tail_of_rare_kinds_passes_over_any_number_of_others(rig: TailRig) -> None:
    run = await rig.begin()
    lines = [line(run, f"line {number}") for number in range(2 * entries.PAGE + 9)]
    for some in (lines[: entries.PAGE], lines[entries.PAGE : -9], lines[-9:]):
        await rig.write(run, [some], 1)
    for last in (None, 1, 2):
        async with reading(tail(rig, run, last=last, patterns=["flow.*"])) as reader:
            await reader.live()
            assert [event.kind for event in reader.events] == ["flow.start"]
    await rig.write(run, [[end(run)]], 1)
    async with reading(tail(rig, run, patterns=["flow.*"])) as reader:
        assert [event.kind for event in await reader.end()] == ["flow.start", "flow.complete"]


@given(
    takes=st.lists(st.integers(1, 5), max_size=8),
    patterns=st.sampled_from([[], ["step.**"], ["step.attempt.*", "flow.*"], ["runner.log"], ["no.such"]]),
    view=st.sampled_from([VIEW_TIMELINE, VIEW_STEPS]),
)
@settings(max_examples=most(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.req("R003-2.4.04")
async def test_a_client_that_comes_and_goes_sees_each_record_once(
    rig: TailRig, takes: list[int], patterns: list[str], view: View.ValueType
) -> None:
    await rig.redis.flushall()
    run = await rig.begin()
    writing = asyncio.create_task(rig.go_on(run))
    seen: list[Event] = []
    for take in takes:
        cursor = seen[-1].id if seen else ""
        async with reading(tail(rig, run, view, cursor=cursor, patterns=patterns)) as reader:
            done = asyncio.create_task(reader.end())
            enough = asyncio.create_task(reader.until(lambda reader=reader, take=take: len(reader.frames) >= take))
            await asyncio.wait({done, enough}, return_when=asyncio.FIRST_COMPLETED)
            for task in (done, enough):
                task.cancel()
            await asyncio.gather(done, enough, return_exceptions=True)
            seen += reader.events[:take]
    await writing
    async with reading(tail(rig, run, view, cursor=seen[-1].id if seen else "", patterns=patterns)) as reader:
        seen += await reader.end()
    everything = await rig.records(run, view)
    assert seen == [
        event for event in everything if not patterns or any(kinds.fits(pattern, event.kind) for pattern in patterns)
    ]


async def test_a_cursor_that_the_stream_no_longer_reaches_goes_on_at_the_oldest_record(rig: TailRig) -> None:
    run = await rig.told()
    there = await rig.records(run)
    await RedisLog(rig.clients).trim(keys.flow_timeline(run.flow_id), there[4].id)
    async with reading(tail(rig, run, cursor=there[1].id)) as reader:
        assert await reader.end() == there[4:]


@pytest.mark.parametrize("cursor", ["99999999999999-0", "99999999999999999999-99999999999999999999"])
async def test_a_cursor_behind_the_newest_record_goes_on_at_the_end(rig: TailRig, cursor: str) -> None:
    """As after a restore: what is written from then on has lower ids than the client knows."""
    run = await rig.begin()
    before = await rig.records(run)
    async with reading(tail(rig, run, cursor=cursor)) as reader:
        await reader.live()
        await rig.go_on(run)
        assert await reader.end() == (await rig.records(run))[len(before) :]


@pytest.mark.parametrize("view", VIEWS)
async def test_behind_the_last_record_of_a_run_there_is_nothing(rig: TailRig, view: View.ValueType) -> None:
    run = await rig.told()
    newest = (await rig.records(run, view))[-1]
    async with reading(tail(rig, run, view, cursor=newest.id)) as reader:
        assert await reader.end() == []
    assert not reader.begun.is_set()


async def test_the_tail_of_a_run_that_is_removed_ends(rig: TailRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_tail, "IDLE_SECONDS", 0.05)
    run = await rig.begin()
    async with reading(tail(rig, run)) as reader, reading(tail(rig, run, VIEW_STEPS)) as other:
        await reader.live()
        await other.live()
        await rig.remove(run)
        assert [event.kind for event in await reader.end()] == ["flow.start"]
        assert await other.end() == []


@pytest.mark.req("R003-5.02", "R003-1.3.08")
async def test_only_canonical_records_are_delivered(rig: TailRig) -> None:
    """What is published and not stored has neither id nor stream; foreign entries of a stream are no records."""
    run = await rig.begin()
    bus = InternalBus()
    wiring = StoreWiring(bus, rig.journal)
    await wiring.start()
    manager = EventManager(bus)
    meta = {"flowId": run.flow_id}
    stream = keys.flow_timeline(run.flow_id)
    async with reading(tail(rig, run)) as reader, reading(tail(rig, run, last=0, patterns=["**"])) as other:
        await reader.live()
        await other.live()
        await manager.publish("order.paid", {"n": 1}, meta, Context(run))
        await manager.publish(kinds.LOG, {"level": "info", "msg": "kept"}, meta, Context(run))
        state = state_of(await rig.records(run))
        for foreign in ({"a": "b"}, {"kind": "", "subject": "", "data": "", "meta": "", "v": "1"}, {"kind": b"\xff"}):
            await rig.redis.xadd(stream, foreign)
        await rig.journal.append(append_of(run, [end(run)], state, 1))
        for found, expected in (
            (await reader.end(), ["flow.start", "runner.log"]),
            (await other.end(), ["runner.log"]),
        ):
            assert [event.kind for event in found] == [*expected, "flow.complete"]
            assert all(event.id and event.stream == stream and event.ts for event in found)
    await wiring.stop()


@pytest.mark.req("R003-1.3.07")
async def test_what_another_process_writes_is_delivered(rig: TailRig, redis_server: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        run = await rig.open()
        readers = [await stack.enter_async_context(reading(tail(rig, run, view))) for view in VIEWS]
        for reader in readers:
            await reader.live()
        script = Path(__file__).with_name("tail_writer.py")
        writer = await asyncio.create_subprocess_exec(sys.executable, str(script), redis_server, run.flow_id)
        assert await writer.wait() == 0
        for view, reader in zip(VIEWS, readers, strict=True):
            found = await reader.end()
            assert found == await rig.records(run, view)
            assert found


@pytest.mark.req("R003-2.4.04")
@pytest.mark.parametrize("view", [VIEW_TIMELINE, VIEW_SNAPSHOT])
@pytest.mark.parametrize("last", [None, 1])
async def test_what_is_written_at_any_moment_of_a_subscription_is_delivered(
    rig: TailRig, view: View.ValueType, last: int | None
) -> None:
    """The run goes on and ends just before each of the round trips that a new client makes."""
    for at in range(7):
        run = await rig.begin(f"run-{at}")
        rig.steps.before(at, partial(rig.go_on, run))
        async with reading(tail(rig, run, view, last=last)) as reader:
            async with asyncio.timeout(PATIENCE):
                while not rig.steps.is_done and not reader.begun.is_set():  # noqa: ASYNC110 - it is a poll
                    await asyncio.sleep(0.001)
            if not rig.steps.is_done:  # it has made fewer
                rig.steps.before(-1, partial(rig.go_on, run))
                await rig.go_on(run)
            found, there = await reader.end(), await rig.records(run, view)
            assert found == (there if last is None or len(found) > 1 else there[-1:]), at


async def test_any_number_of_tails_waits_on_one_connection(rig: TailRig) -> None:
    run = await rig.begin()
    async with contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(reading(tail(rig, run, VIEWS[number % len(VIEWS)]))) for number in range(40)
        ]
        for reader in readers:
            await reader.live()
        names = [one["name"] for one in await rig.redis.client_list()]
        assert names.count("tails-under-test") == 1
        await rig.go_on(run)
        for number, reader in enumerate(readers):
            assert ids(await reader.end()) == ids(await rig.records(run, VIEWS[number % len(VIEWS)]))


async def test_a_lost_connection_loses_no_record(rig: TailRig) -> None:
    run = await rig.begin()
    async with reading(tail(rig, run)) as one, reading(rig.bus.tail_kinds) as every:
        await one.live()
        await every.live()
        first, *rest = story(run)
        for number, events in enumerate([first[1:], *rest]):
            for connection in await rig.redis.client_list():
                if connection["name"].startswith("tails-under-test"):
                    await rig.redis.execute_command("CLIENT", "KILL", "ID", connection["id"])
            await rig.write(run, [events], (await rig.journal.load({run.flow_id: "0-0"}))[run.flow_id][0].revision)
            await one.until(lambda number=number: len(one.frames) > number)
        there = await rig.records(run)
        assert await one.end() == there
        await every.until(lambda: len(every.frames) >= len(there) - 1)
        assert every.events == there[1:]


async def test_a_client_that_falls_behind_loses_nothing(rig: TailRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CAPACITY", 2)
    run = await rig.begin()
    seen: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        client = TailClient(lambda: None, _nothing)
        async for frame in rig.bus.tail(run, VIEW_TIMELINE, client):
            if not seen:
                await rig.go_on(run)  # all of it comes while this client is busy
            seen.append(frame.record)
    assert seen == await rig.records(run)


async def _nothing() -> None:
    pass


@pytest.mark.req("R003-1.3.09")
async def test_the_index_of_a_flow_is_tailed_and_does_not_end(rig: TailRig) -> None:
    await rig.told("mine-1", tenant="me")
    await rig.told("yours-1", tenant="you")
    mine = partial(rig.bus.tail_runs, "example-flow", may_see=lambda run: run.tenant == "me")
    everything = partial(rig.bus.tail_runs, "example-flow")
    async with reading(mine) as some, reading(everything) as every, reading(partial(mine, last=1)) as newest:
        for reader in (some, every, newest):
            await reader.live()
        await rig.told("yours-2", tenant="you")
        await rig.told("mine-2", tenant="me")
        await rig.told("other", flow_name="another-flow", tenant="me")
        await rig.told("mine-3", tenant="me")
        for reader, count in ((some, 3), (every, 5), (newest, 3)):
            await reader.until(lambda reader=reader, count=count: len(reader.frames) >= count)
        index = await rig.records(Run("", "example-flow"), VIEW_RUNS)
        assert every.events == index
        assert some.events == newest.events == [event for event in index if b'"mine-' in event.data]
        cursor = some.events[1].id
    async with reading(partial(mine, cursor=cursor)) as again:
        await again.live()
        assert again.events == some.events[2:]


async def test_records_of_a_tail_rise(rig: TailRig) -> None:
    """Log lines of others come between the events of the engine."""
    run = await rig.begin()

    async def talk() -> None:
        for number in range(30):
            await rig.write(run, [[line(run, f"line {number}")]], 0)

    async with reading(tail(rig, run)) as reader:
        first, *rest = story(run)
        await asyncio.gather(talk(), rig.write(run, [first[1:], *rest[:-1]], 1))
        await rig.write(run, rest[-1:], (await rig.journal.load({run.flow_id: "0-0"}))[run.flow_id][0].revision)
        found = await reader.end()
    assert found == await rig.records(run)
    places = [parse_id(event.id) for event in found]
    assert places == sorted(set(places))
