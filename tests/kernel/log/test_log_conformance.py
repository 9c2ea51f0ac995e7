"""What every adapter of the append-only store does alike. The model is a plain list."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.ids import uuid7
from kernel.log.offsets import START, offset, parse_id
from kernel.log.store import Entry, LogStore
from tests.examples import most


async def _fill(log: LogStore, stream: str, count: int) -> list[str]:
    return [await log.append(stream, {"n": str(n).encode()}) for n in range(count)]


def _numbers(entries: list[Entry]) -> list[int]:
    return [int(entry.fields["n"]) for entry in entries]


async def test_nothing_is_there_at_first(log: LogStore) -> None:
    assert await log.read("s") == []
    assert await log.read_last("s", 5) == []
    assert await log.length("s") == 0
    assert await log.first("s") is None
    assert await log.last("s") == START
    assert await log.trim("s", "999-0") == 0
    assert await log.trim_length("s", 0) == 0


async def test_ids_rise_and_have_offsets(log: LogStore) -> None:
    ids = await _fill(log, "s", 200)
    assert [parse_id(i) for i in ids] == sorted({parse_id(i) for i in ids})
    assert [offset(i) for i in ids] == sorted(offset(i) for i in ids)
    assert (await log.first("s"), await log.last("s")) == (ids[0], ids[-1])
    assert await log.length("s") == 200


async def test_a_cursor_is_exclusive_and_pages_join(log: LogStore) -> None:
    ids = await _fill(log, "s", 57)
    seen: list[Entry] = []
    while page := await log.read("s", seen[-1].id if seen else START, 10):
        assert len(page) <= 10
        seen += page
    assert [entry.id for entry in seen] == ids
    assert _numbers(seen) == list(range(57))
    assert await log.read("s", ids[-1]) == []


async def test_a_cursor_between_ids_works(log: LogStore) -> None:
    ids = await _fill(log, "s", 3)
    ms, _ = parse_id(ids[-1])
    assert len(await log.read("s", f"{parse_id(ids[0])[0] - 1}-7")) == 3
    assert await log.read("s", f"{ms + 1}-0") == []


async def test_the_newest_come_oldest_first(log: LogStore) -> None:
    await _fill(log, "s", 25)
    assert _numbers(await log.read_last("s", 10)) == list(range(15, 25))
    assert _numbers(await log.read_last("s", 100)) == list(range(25))
    assert _numbers(await log.read_last("s", 1)) == [24]


async def test_streams_are_apart(log: LogStore) -> None:
    names = ["a", "b:0", "nq:flow:6d1a…", "x/../y", "..", "ä" * 120, "nq:proj:flow-steps:" + "f" * 300]
    for n, name in enumerate(names):
        await log.append(name, {"n": str(n).encode()})
    for n, name in enumerate(names):
        assert _numbers(await log.read(name)) == [n]


async def test_a_batch_is_whole_and_in_order(log: LogStore) -> None:
    pad = b"x" * 10_000

    async def batch(writer: int) -> list[str]:
        # Larger than one read of a server's socket: commands that are only sent together would mix.
        return await log.append_many("s", [{"n": str(writer * 100 + n).encode(), "pad": pad} for n in range(20)])

    assert await log.append_many("s", []) == []
    ids = await asyncio.gather(*(batch(writer) for writer in range(8)))
    entries = await log.read("s", limit=1000)
    numbers = _numbers(entries)
    assert len(numbers) == 160
    for start in range(0, 160, 20):
        run = numbers[start : start + 20]
        assert run == list(range(run[0], run[0] + 20))
    assert sorted(i for own in ids for i in own) == sorted(entry.id for entry in entries)


async def test_an_entry_without_fields_is_refused_and_leaves_nothing(log: LogStore) -> None:
    with pytest.raises(ValueError, match="at least one field"):
        await log.append("s", {})
    with pytest.raises(ValueError, match="at least one field"):
        await log.append_many("s", [{"n": b"1"}, {}])
    assert await log.length("s") == 0


_FIELDS = st.dictionaries(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=10),
    st.binary(max_size=200),
    min_size=1,
    max_size=4,
)


@settings(max_examples=most(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(_FIELDS, min_size=1, max_size=5), max_size=6))
async def test_any_bytes_come_back(log: LogStore, batches: list[list[dict[str, bytes]]]) -> None:
    stream = uuid7()
    for batch in batches:
        await log.append_many(stream, batch)
    assert [dict(entry.fields) for entry in await log.read(stream, limit=1000)] == [
        f for batch in batches for f in batch
    ]


@dataclass
class _Model:
    """What the stream should hold."""

    entries: list[tuple[str, bytes]] = field(default_factory=list)
    last: str = START


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 8)),
        st.tuples(st.just("trim"), st.integers(0, 40)),
        st.tuples(st.just("trim_length"), st.integers(0, 30)),
        st.tuples(st.just("read"), st.integers(0, 40)),
    ),
    max_size=20,
)


@settings(max_examples=most(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
async def test_any_history_of_appends_and_trims(log: LogStore, steps: list[tuple[str, int]]) -> None:
    stream, model, given_ids = uuid7(), _Model(), []
    for kind, number in steps:
        if kind == "append":
            values = [f"{len(given_ids) + n}".encode() for n in range(number)]
            ids = await log.append_many(stream, [{"n": value} for value in values])
            given_ids += ids
            model.entries += zip(ids, values, strict=True)
            model.last = ids[-1]
        elif kind == "trim":
            before = given_ids[number] if number < len(given_ids) else model.last
            kept = [e for e in model.entries if parse_id(e[0]) >= parse_id(before)]
            assert await log.trim(stream, before) == len(model.entries) - len(kept)
            model.entries = kept
        elif kind == "trim_length":
            kept = model.entries[max(0, len(model.entries) - number) :]
            assert await log.trim_length(stream, number) == len(model.entries) - len(kept)
            model.entries = kept
        else:
            after = given_ids[number] if number < len(given_ids) else START
            expected = [e for e in model.entries if parse_id(e[0]) > parse_id(after)][:7]
            assert [(e.id, e.fields["n"]) for e in await log.read(stream, after, 7)] == expected
        await _compare(log, stream, model)


async def _compare(log: LogStore, stream: str, model: _Model) -> None:
    assert [(e.id, e.fields["n"]) for e in await log.read(stream, limit=1000)] == model.entries
    assert await log.length(stream) == len(model.entries)
    assert await log.first(stream) == (model.entries[0][0] if model.entries else None)
    assert await log.last(stream) == model.last
    assert [(e.id, e.fields["n"]) for e in await log.read_last(stream, 5)] == model.entries[-5:]


async def test_concurrent_appenders_lose_and_double_nothing(log: LogStore) -> None:
    async def write(writer: int) -> list[str]:
        return [await log.append("s", {"n": f"{writer * 1000 + n}".encode()}) for n in range(30)]

    ids = [i for own in await asyncio.gather(*(write(w) for w in range(10))) for i in own]
    entries = await log.read("s", limit=1000)
    assert sorted(_numbers(entries)) == sorted(w * 1000 + n for w in range(10) for n in range(30))
    assert {entry.id for entry in entries} == set(ids)
    for writer in range(10):
        own = [n for n in _numbers(entries) if n // 1000 == writer]
        assert own == sorted(own)


async def _collect(batches: AsyncGenerator[list[Entry], None], count: int, pause: float = 0) -> list[int]:
    seen: list[int] = []
    async with contextlib.aclosing(batches):
        async for batch in batches:
            assert batch
            seen += _numbers(batch)
            if len(seen) >= count:
                break
            await asyncio.sleep(pause)
    return seen


@pytest.mark.fault(62)
async def test_a_subscription_joins_backfill_and_live_without_a_gap(log: LogStore) -> None:
    await _fill(log, "s", 30)
    reading = asyncio.create_task(_collect(log.subscribe("s", limit=7), 200))
    for n in range(30, 200):
        await log.append("s", {"n": str(n).encode()})
        if n % 10 == 0:
            await asyncio.sleep(0)
    assert await asyncio.wait_for(reading, 20) == list(range(200))


async def test_many_subscriptions_each_at_its_own_pace(log: LogStore) -> None:
    readers = [
        asyncio.create_task(_collect(log.subscribe(f"s{n % 5}", limit=4), 40, pause=0.001 * (n % 3))) for n in range(50)
    ]
    for n in range(40):
        for stream in range(5):
            await log.append(f"s{stream}", {"n": str(n).encode()})
    for seen in await asyncio.wait_for(asyncio.gather(*readers), 30):
        assert seen == list(range(40))


async def test_a_subscription_begins_behind_its_cursor(log: LogStore) -> None:
    ids = await _fill(log, "s", 10)
    assert await _collect(log.subscribe("s", ids[5]), 4) == [6, 7, 8, 9]


async def test_a_subscription_waits_for_a_stream_that_does_not_exist_yet(log: LogStore) -> None:
    reading = asyncio.create_task(_collect(log.subscribe("s"), 1))
    await asyncio.sleep(0.05)  # in which it would end, or begins to wait
    assert not reading.done()
    await log.append("s", {"n": b"1"})
    assert await asyncio.wait_for(reading, 10) == [1]


async def test_a_cancelled_subscription_leaves_the_others_alone(log: LogStore) -> None:
    first = asyncio.create_task(_collect(log.subscribe("s"), 1))
    second = asyncio.create_task(_collect(log.subscribe("s"), 1))
    await asyncio.sleep(0.05)  # in which it would end, or begins to wait
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await log.append("s", {"n": b"1"})
    assert await asyncio.wait_for(second, 10) == [1]


async def test_a_subscription_goes_on_when_what_it_has_is_trimmed(log: LogStore) -> None:
    seen: list[int] = []
    await _fill(log, "s", 10)
    async with contextlib.aclosing(log.subscribe("s", limit=5)) as batches:
        async for batch in batches:
            seen += _numbers(batch)
            await log.trim("s", batch[-1].id)
            if len(seen) == 30:
                break
            await log.append_many("s", [{"n": str(n).encode()} for n in range(len(seen) + 5, len(seen) + 10)])
    assert seen == list(range(30))


async def test_a_wait_is_short_when_an_entry_comes(log: LogStore) -> None:
    loop = asyncio.get_running_loop()
    reading = asyncio.create_task(_collect(log.subscribe("s"), 1))
    await asyncio.sleep(0.1)  # until it waits
    started = loop.time()
    await log.append("s", {"n": b"1"})
    await asyncio.wait_for(reading, 10)
    assert loop.time() - started < 1.0


async def test_a_newcomer_is_told_at_once_while_others_wait(log: LogStore) -> None:
    loop = asyncio.get_running_loop()
    idle = asyncio.create_task(_collect(log.subscribe("idle"), 1))
    for n in range(10):
        await asyncio.sleep(0.03)
        reading = asyncio.create_task(_collect(log.subscribe(f"s{n}"), 1))
        await asyncio.sleep(0.001 * n)
        started = loop.time()
        await log.append(f"s{n}", {"n": b"1"})
        assert await asyncio.wait_for(reading, 10) == [1]
        assert loop.time() - started < 1.0
    assert not idle.done()
    idle.cancel()
    await asyncio.gather(idle, return_exceptions=True)


async def test_closing_is_safe_twice(log: LogStore) -> None:
    await log.append("s", {"n": b"1"})
    await log.close()
    await log.close()
