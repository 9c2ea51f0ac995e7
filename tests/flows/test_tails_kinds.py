"""The Store Bus: tails of all runs by kind, while runs begin, go on and end."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial

import pytest
from tail_rig import FLOW, PATIENCE, Reader, TailRig, reading

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds
from flows.model.types import Run
from flows.tails import kind_tail
from flows.tails.stream_tail import TailClient
from kernel.redis import keys
from kernel.watch import feed


@pytest.fixture
async def rig(redis_server: str) -> AsyncIterator[TailRig]:
    async with TailRig.at(redis_server) as opened:
        yield opened


def by_run(events: list[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.stream.removeprefix(keys.flow_timeline(""))].append(event)
    return found


@pytest.mark.req("R003-1.3.06", "R003-1.3.08", "R003-2.4.04")
async def test_a_run_that_begins_later_is_delivered_whole_and_once(rig: TailRig) -> None:
    """Runs of known flows and of one that is new; they begin while others are in the middle and end."""
    before = await rig.begin("before")
    over = await rig.told("over")
    names = [FLOW, "another-flow", "a-third"]
    async with reading(rig.bus.tail_kinds) as reader, reading(partial(rig.bus.tail_kinds, flow_name=FLOW)) as one:
        await reader.live()
        await one.live()
        runs = [Run(f"run-{number}", names[number % 3]) for number in range(12)]
        await asyncio.gather(rig.go_on(before), *(rig.told(run.flow_id, run.flow_name) for run in runs))
        expected = {run.flow_id: await rig.records(run) for run in runs}
        expected["before"] = (await rig.records(before))[1:]
        await reader.until(lambda: len(reader.frames) >= sum(map(len, expected.values())))
        assert by_run(reader.events) == expected
        mine = {run.flow_id: expected[run.flow_id] for run in [*runs, before] if run.flow_name == FLOW}
        await one.until(lambda: len(one.frames) >= sum(map(len, mine.values())))
        assert by_run(one.events) == mine
        assert over.flow_id not in by_run(reader.events)
        assert rig.subscribers == 4, "runs that are over are no longer waited for, only the indexes are"
        assert all(frame.event == frame.record.kind and frame.v == 1 for frame in reader.frames)


async def test_the_first_run_of_a_flow_is_found_by_each_client(rig: TailRig) -> None:
    """The later one begins to read an index that the earlier one has made the process read already."""
    async with reading(rig.bus.tail_kinds) as one:
        await one.live()
        for number in range(5):  # time in which their looks go apart
            await rig.told(f"before-{number}")
        async with reading(rig.bus.tail_kinds) as other:
            await other.live()
            run = await rig.told("run", "a-new-flow")
            for reader in (one, other):
                await reader.until(partial(_has_ended, reader, run))
                assert by_run(reader.events)["run"] == await rig.records(run)


async def test_a_run_that_is_indexed_twice_comes_once(rig: TailRig) -> None:
    async with reading(rig.bus.tail_kinds) as reader:
        await reader.live()
        run = await rig.begin()
        await reader.until(lambda: bool(reader.frames))
        ((_, entry),) = await rig.redis.xrange(keys.flow_runs(FLOW))
        await rig.redis.xadd(keys.flow_runs(FLOW), entry)
        other = await rig.told("other")
        await reader.until(lambda: len(by_run(reader.events)) == 2)
        await rig.go_on(run)
        expected = {one.flow_id: await rig.records(one) for one in (run, other)}
        await reader.until(lambda: len(reader.frames) >= sum(map(len, expected.values())))
        assert by_run(reader.events) == expected


async def test_patterns_choose_kinds(rig: TailRig) -> None:
    patterns = ["step.attempt.*", "flow.start"]
    async with reading(partial(rig.bus.tail_kinds, flow_name=FLOW, patterns=patterns)) as reader:
        await reader.live()
        run = await rig.told()
        expected = [
            event for event in await rig.records(run) if any(kinds.fits(pattern, event.kind) for pattern in patterns)
        ]
        await reader.until(lambda: len(reader.frames) >= len(expected))
        assert reader.events == expected
        await _only_indexes(rig, 1)


async def _only_indexes(rig: TailRig, count: int) -> None:
    """Until nobody waits for anything but so many indexes."""
    async with asyncio.timeout(PATIENCE):
        while rig.subscribers != count:  # noqa: ASYNC110 - nobody tells that a client has left a channel
            await asyncio.sleep(0.01)


async def test_runs_that_the_client_may_not_see_are_left_out(rig: TailRig) -> None:
    yours = await rig.begin("yours", tenant="you")
    async with reading(partial(rig.bus.tail_kinds, may_see=lambda run: run.tenant == "me")) as reader:
        await reader.live()
        await rig.go_on(yours)
        await rig.told("yours-too", tenant="you")
        mine = await rig.told("mine", tenant="me")
        expected = await rig.records(mine)
        await reader.until(lambda: len(reader.frames) >= len(expected))
        assert reader.events == expected


async def test_a_client_that_falls_behind_loses_nothing(rig: TailRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CAPACITY", 2)
    before = await rig.begin("before")
    runs = [Run(f"run-{number}", FLOW) for number in range(6)]
    seen: list[Event] = []
    expected = 0

    async def write() -> None:
        nonlocal expected
        await asyncio.gather(*(rig.told(run.flow_id) for run in runs[1:]))
        expected = sum([len(await rig.records(run)) for run in runs]) + len(await rig.records(before)) - 1

    begun = asyncio.Event()

    async def note() -> None:
        begun.set()

    async def start() -> None:
        await begun.wait()
        await asyncio.gather(rig.told(runs[0].flow_id), rig.go_on(before))

    starting = asyncio.create_task(start())
    async with asyncio.timeout(PATIENCE):
        async for frame in rig.bus.tail_kinds(TailClient(lambda: None, note)):
            if not seen:
                await starting
                await write()  # all of it comes while this client is busy
            seen.append(frame.record)
            if len(seen) == expected:
                break
    assert by_run(seen) == {
        "before": (await rig.records(before))[1:],
        **{run.flow_id: await rig.records(run) for run in runs},
    }


@pytest.mark.parametrize("ends", [True, False])
async def test_a_run_whose_end_was_not_heard_is_left(
    rig: TailRig, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    monkeypatch.setattr(kind_tail, "_AUDIT_SECONDS", 0.0)
    monkeypatch.setattr(kind_tail, "_LOOK_SECONDS", 0.05)
    run = await rig.begin()
    async with reading(partial(rig.bus.tail_kinds, flow_name=FLOW)) as reader:
        await reader.live()
        assert rig.subscribers == 2
        if ends:
            await rig.redis.hset(keys.flow(run.flow_id), "ended", 1)
        else:
            await rig.remove(run)
        await _only_indexes(rig, 1)
        assert not reader.frames


@pytest.mark.req("R003-1.3.06", "R003-2.4.04")
@pytest.mark.parametrize("name", [FLOW, "a-new-flow"])
@pytest.mark.parametrize("what", ["begins", "is over", "was opened and is over"])
async def test_a_run_that_begins_at_any_moment_of_a_subscription_comes_without_hole_or_repetition(
    rig: TailRig, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    """It begins, or begins and ends, just before each of the round trips that a new client makes.

    One that was opened before is known by then, and has no event yet.
    """
    # New names are looked for often; but where it begins only, it is mostly over before its name is found.
    monkeypatch.setattr(kind_tail, "_LOOK_SECONDS", 0.15 if (name, what) == ("a-new-flow", "begins") else 0.02)
    await rig.begin("old")
    at = missed = 0
    while at - missed < 5:  # until it was late for some steps
        run = Run(f"run-{at}", name if name == FLOW else f"{name}-{at}")
        if what == "was opened and is over":
            await rig.open(run.flow_id, run.flow_name)
        write = rig.begin if what == "begins" else rig.told
        rig.steps.before(at, partial(write, run.flow_id, run.flow_name))
        async with reading(rig.bus.tail_kinds) as reader:
            await reader.live()
            is_late = not rig.steps.is_done
            async with asyncio.timeout(PATIENCE):
                while not await rig.records(run) or not rig.steps.is_done:  # noqa: ASYNC110 - it is a poll
                    await asyncio.sleep(0.001)
            if what == "begins":
                await rig.go_on(run)
            last = [await rig.told(f"last-{at}", FLOW), await rig.told(f"new-{at}", f"last-new-{at}")]
            for end_of in (*last, *([run] if what == "begins" or is_late else [])):
                await reader.until(partial(_has_ended, reader, end_of))
            found, whole = by_run(reader.events), await rig.records(run)
            assert found.keys() <= {run.flow_id, *(other.flow_id for other in last)}
            mine = found.get(run.flow_id, [])
            assert mine == whole[len(whole) - len(mine) :], at
            if is_late:
                assert mine == whole, at
            elif what == "begins":
                assert mine[-len(whole) + 1 :] == whole[1:], at
            missed += not is_late
        at += 1


def _has_ended(reader: Reader, run: Run) -> bool:
    mine = by_run(reader.events).get(run.flow_id)
    return mine is not None and mine[-1].kind in kinds.FLOW_ENDS
