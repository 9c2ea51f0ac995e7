"""From the bus into the store: what is kept, in which order, and what happens when the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from journal_rig import (
    ADAPTERS,
    agree,
    begun,
    end,
    eventually,
    line,
    of_step,
    opened,
    redis_config,
    start,
    started,
    story,
    whole,
)

from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_TIMELINE, Event
from flows.journal.journal import VIEWS, Append, Journal, Outcome
from flows.journal.log_journal import LogJournal
from flows.journal.redis_journal import RedisJournal
from flows.model import kinds
from flows.model.events import data_of, draft
from flows.model.state import state_of
from flows.model.types import ConflictError, Context, FlowState, Run, RunGoneError
from flows.publishing.bus import InternalBus, Receipt
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.errors import FetchboxError, unavailable
from kernel.log.memory import MemoryLog
from kernel.redis.clients import RedisClients
from tests.kernel.cutting import cutting


@dataclass
class Wired:
    """A bus, its manager, and a store."""

    journal: Journal
    bus: InternalBus = field(default_factory=InternalBus)

    def __post_init__(self) -> None:
        self.manager = EventManager(self.bus)
        self.wiring = StoreWiring(self.bus, self.journal)

    async def __aenter__(self) -> Wired:
        await self.wiring.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wiring.stop()

    async def publish(self, run: Run, events: Sequence[Event], fence: int | None = None) -> int:
        return (await self.manager.publish_all(events, Context(run, fence=fence))).revision

    async def tell(self, run: Run, chapters: Sequence[Sequence[Event]]) -> None:
        revision = 0
        for events in chapters:
            fence = None if all(event.kind == kinds.LOG for event in events) else revision
            revision = await self.publish(run, events, fence)


@pytest.fixture(params=ADAPTERS)
async def wired(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Wired]:
    addr = request.getfixturevalue("redis_server") if request.param == "redis" else ""
    async with opened(request.param, tmp_path / "log", addr) as journal, Wired(journal) as made:
        yield made


class SlowLog(LogJournal):
    """A journal whose appends wait for the test, and which may be away."""

    def __init__(self) -> None:
        super().__init__(MemoryLog(), max_logs=100_000)
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.away = 0
        self.calls: list[list[Append]] = []

    async def append_many(self, appends: Sequence[Append]) -> list[Outcome]:
        self.calls.append(list(appends))
        await self.may_go.wait()
        if self.away:
            self.away -= 1
            return [unavailable("away") for _ in appends]
        return await super().append_many(appends)


@pytest.mark.req("R003-1.3.03", "R003-1.3.04", "R003-3.4.03", "R003-goals.01")
async def test_what_is_published_becomes_records_and_projections(wired: Wired) -> None:
    run = await begun(wired.journal)
    await wired.tell(run, story(run))
    timeline = await whole(wired.journal, run, VIEW_TIMELINE)
    assert [event.kind for event in timeline] == [event.kind for events in story(run) for event in events]
    assert all(event.id and event.stream and event.ts for event in timeline)
    await agree(wired.journal, run)


@pytest.mark.req("R003-1.3.05")
async def test_nothing_that_was_stored_comes_back_to_the_bus(wired: Wired) -> None:
    run = await begun(wired.journal)
    seen: list[Event] = []
    wired.bus.subscribe(lambda event, _: seen.append(event))
    await wired.tell(run, story(run))
    assert [event.kind for event in seen] == [event.kind for events in story(run) for event in events]
    assert not any(event.HasField("id") or event.HasField("stream") or event.HasField("ts") for event in seen)


@pytest.mark.req("R003-2.02")
async def test_of_a_message_the_kinds_that_are_kept_are_stored(wired: Wired) -> None:
    run = await begun(wired.journal)
    seen: list[str] = []
    wired.bus.subscribe(lambda event, _: seen.append(event.kind))
    await wired.publish(run, [draft("order.seen", {"n": 1}), start(run), draft("order.gone")], fence=0)
    assert (await wired.manager.publish("order.paid", None, None, Context(run))).events == ()
    assert seen == ["order.seen", "flow.start", "order.gone", "order.paid"]
    stored = [event.kind for view in VIEWS for event in await whole(wired.journal, run, view)]
    assert sorted(stored) == ["flow.run.indexed", "flow.snapshot.patch", "flow.start"]


async def test_publishers_are_told_of_conflicts_and_ends(wired: Wired) -> None:
    run = await begun(wired.journal)
    revision = await wired.publish(run, [start(run)], fence=0)
    with pytest.raises(ConflictError):
        await wired.publish(run, [start(run)], fence=0)
    await wired.publish(run, [end(run)], fence=revision)
    with pytest.raises(RunGoneError):
        await wired.publish(run, [line(run, "late")])
    with pytest.raises(RunGoneError):
        await wired.publish(
            Run("unknown", ""), [draft("runner.log", {"level": "a", "msg": "b"}, {"flowId": "unknown"})]
        )


async def test_a_publisher_of_lines_need_not_know_the_flow(wired: Wired) -> None:
    run = await started(wired.journal)
    await wired.publish(Run(run.flow_id, ""), [line(run, "one")])
    assert len(await whole(wired.journal, run, VIEW_LOGS)) == 1
    wrong = draft("runner.log", {"level": "a", "msg": "b"}, {"flowId": run.flow_id, "flowName": "another"})
    with pytest.raises(FetchboxError, match="INVALID_PAYLOAD"):
        await wired.publish(Run(run.flow_id, ""), [wrong])
    assert len(await whole(wired.journal, run, VIEW_TIMELINE)) == 2


async def test_what_changes_a_run_needs_a_fence(wired: Wired) -> None:
    run = await begun(wired.journal)
    with pytest.raises(ValueError, match="revision"):
        await wired.publish(run, [line(run, "one"), start(run)])
    with pytest.raises(ValueError, match="too many"):
        await wired.publish(run, [line(run, f"{n}") for n in range(251)])
    assert not await whole(wired.journal, run, VIEW_TIMELINE)


async def test_a_state_that_the_publisher_knows_gives_the_same_patches(wired: Wired) -> None:
    runs = [await begun(wired.journal, f"run-{n}") for n in range(2)]
    knows, asks = runs
    revision = 0
    for events, same in zip(story(knows), story(asks), strict=True):
        fence = None if events[0].kind == kinds.LOG else revision
        state = state_of(await whole(wired.journal, knows, VIEW_TIMELINE))
        kept = repr(state)
        revision = (await wired.manager.publish_all(events, Context(knows, state, fence))).revision
        assert repr(state) == kept
        await wired.publish(asks, same, fence)
    for view in VIEWS[1:]:
        found = [[set(data_of(event)) for event in await whole(wired.journal, run, view)] for run in runs]
        assert found[0] == found[1]


async def test_what_comes_while_the_store_is_busy_leaves_together() -> None:
    journal = SlowLog()
    async with Wired(journal) as wired:
        runs = [await started(journal, f"run-{n}") for n in range(3)]
        journal.may_go.clear()
        step = of_step(runs[0], kinds.STEP_SCHEDULED, 1)
        receipts = [wired.manager.publish_all([step], Context(runs[0], None, 1))]
        await eventually(lambda: _is(len(journal.calls) == 1))
        for run in runs:
            pairs = [[line(run, f"{n}"), line(run, f"{n} b")] for n in range(4)]
            receipts += [wired.manager.publish_all(pair, Context(run)) for pair in pairs]
        step = of_step(runs[1], kinds.STEP_SCHEDULED, 1)
        receipts.append(wired.manager.publish_all([step], Context(runs[1], None, 1)))
        receipts.append(wired.manager.publish_all([line(runs[1], "last")], Context(runs[1])))
        journal.may_go.set()
        stored = [await receipt for receipt in receipts]
    assert [len(call) for call in journal.calls] == [1, 5]
    # Each is told of its own events.
    for run, appended in zip([run for run in runs for _ in range(4)], stored[1:], strict=False):
        assert [data_of(event)["msg"].endswith(" b") for event in appended.events] == [False, True]
        assert all(event.stream == f"nq:flow:{run.flow_id}" for event in appended.events)
    # The order of publishing is that of the timeline.
    kinds_of = [event.kind for event in await whole(journal, runs[1], VIEW_TIMELINE)]
    assert kinds_of == ["flow.start", *["runner.log"] * 8, "step.scheduled", "runner.log"]
    for run in runs[:2]:
        await agree(journal, run)


async def _is(value: bool) -> bool:
    return value


async def test_lines_that_were_left_out_are_missing_in_the_last_receipts() -> None:
    journal = SlowLog()
    journal._max_logs = 3
    async with Wired(journal) as wired:
        run = await started(journal)
        receipts = [wired.manager.publish_all([line(run, "a"), line(run, "b")], Context(run)) for _ in range(3)]
        assert [len((await receipt).events) for receipt in receipts] == [2, 1, 0]


async def test_lines_wait_for_a_store_that_is_away_and_are_not_doubled() -> None:
    journal = SlowLog()
    async with Wired(journal) as wired:
        run = await started(journal)
        journal.away = 2
        receipt = wired.manager.publish_all([line(run, "one")], Context(run))
        assert [data_of(event)["msg"] for event in (await receipt).events] == ["one"]
        assert len({call[0].batch for call in journal.calls}) == 1
        assert len(journal.calls) == 3
        journal.away = 1
        with pytest.raises(FetchboxError, match="UNAVAILABLE"):
            await wired.publish(run, [of_step(run, kinds.STEP_SCHEDULED, 1)], fence=1)
        await wired.publish(run, [of_step(run, kinds.STEP_SCHEDULED, 1)], fence=1)
        await agree(journal, run)


async def test_a_store_that_is_away_too_long_takes_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.publishing.wiring._PATIENCE", 0.0)
    journal = SlowLog()
    async with Wired(journal) as wired:
        run = await started(journal)
        journal.away = 1
        with pytest.raises(FetchboxError, match="UNAVAILABLE"):
            await wired.publish(run, [line(run, "one")])


async def test_no_more_is_taken_than_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.publishing.wiring._MOST_BYTES", 3 * 2300)
    journal = SlowLog()
    async with Wired(journal) as wired:
        run = await started(journal)
        journal.may_go.clear()
        receipts = [wired.manager.publish_all([line(run, "one")], Context(run)) for _ in range(3)]
        with pytest.raises(FetchboxError, match="does not keep up"):
            wired.manager.publish_all([line(run, "one")], Context(run))
        journal.may_go.set()
        for receipt in receipts:
            await receipt


async def test_a_long_outage_fills_no_memory_with_lines_that_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.publishing.wiring._MOST_BYTES", 1 << 20)
    monkeypatch.setattr("flows.publishing.wiring._PAUSE", 0.0)
    journal = SlowLog()
    async with Wired(journal) as wired:
        run = await started(journal)
        journal.away = 1_000_000
        receipts: list[Receipt] = []
        for _ in range(20):
            receipts.append(wired.manager.publish_all([line(run, "x" * 50_000)], Context(run)))
            calls = len(journal.calls)
            await eventually(lambda calls=calls: _is(len(journal.calls) > calls + 1))
        with pytest.raises(FetchboxError, match="does not keep up"):
            wired.manager.publish_all([line(run, "x" * 50_000)], Context(run))
        journal.away = 0
        assert sum([len((await receipt).events) for receipt in receipts]) == 20
        # There is room again.
        assert len((await wired.manager.publish_all([line(run, "x" * 50_000)], Context(run))).events) == 1
        await agree(journal, run)


async def test_a_stop_stores_what_there_is_and_tells_what_it_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.publishing.wiring._LAST_WORDS", 60.0)
    journal = SlowLog()
    async with Wired(journal) as wired:
        run = await started(journal)
        stored = wired.manager.publish_all([line(run, "one")], Context(run))
    assert len((await stored).events) == 1
    monkeypatch.setattr("flows.publishing.wiring._LAST_WORDS", 0.2)
    async with Wired(journal) as wired:
        journal.may_go.clear()
        under_way = wired.manager.publish_all([line(run, "two")], Context(run))
        await eventually(lambda: _is(len(journal.calls) == 2))
        waiting = wired.manager.publish_all([line(run, "three")], Context(run))
    for receipt in (under_way, waiting):
        with pytest.raises(FetchboxError, match="UNAVAILABLE"):
            await receipt
    with pytest.raises(FetchboxError, match="No store"):
        wired.manager.publish_all([line(run, "four")], Context(run))


async def test_a_drain_waits_until_all_is_stored() -> None:
    journal = SlowLog()
    async with Wired(journal) as wired:
        run = await started(journal)
        for n in range(100):
            wired.manager.publish_all([line(run, f"{n}")], Context(run))
        await wired.wiring.drain(60)
        assert len(await whole(journal, run, VIEW_TIMELINE)) == 101


async def test_one_bad_message_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = SlowLog()
    async with Wired(journal) as wired:
        run, other = await begun(journal), await begun(journal, "run-2")
        monkeypatch.setattr("flows.publishing.wiring.MOST", 5)
        many = [start(run), *(of_step(run, kinds.STEP_SCHEDULED, 1) for _ in range(5))]
        bad = wired.manager.publish_all(many, Context(run, FlowState(), 0))
        good = wired.manager.publish_all([start(other)], Context(other, FlowState(), 0))
        with pytest.raises(ValueError, match="too many"):
            await bad
        assert (await good).revision == 1


async def test_cut_connections_lose_no_line_and_double_none(redis_server: str) -> None:
    async with cutting(redis_server) as proxy:
        config = redis_config(proxy.addr)
        clients = await RedisClients.open(config.redis)
        journal = RedisJournal(clients, config)
        async with Wired(journal) as wired:
            run = await started(journal)
            receipts = []
            for n in range(120):
                if n % 10 == 5:
                    proxy.lose("runner.log", 1)
                receipts.append(wired.manager.publish_all([line(run, f"line {n}")], Context(Run("run-1", ""))))
                if n % 3 == 0:
                    await receipts[-1]
            told = [(await receipt).events[0] for receipt in receipts]
            timeline = (await whole(journal, run, VIEW_TIMELINE))[1:]
            await eventually(lambda: _is(proxy.cuts > 5))
        assert [data_of(event)["msg"] for event in timeline] == [f"line {n}" for n in range(120)]
        assert told == timeline
        assert len(await whole(journal, run, VIEW_LOGS)) == 120
        await journal.close()
        await clients.close()
