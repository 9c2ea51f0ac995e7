"""The adapter of seed 003, section 3.1, over Redis, files and memory."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from fetchbox.flow.v1.event_pb2 import Event
from flows.journal.records import RecordAdapter
from flows.model import codec
from flows.model.events import draft
from kernel.errors import FetchboxError, unavailable
from kernel.log.memory import MemoryLog
from kernel.log.offsets import START, parse_id
from kernel.log.store import Entry, LogStore
from tests.flows.examples import EXAMPLES
from tests.kernel.log.conftest import log  # noqa: F401  # the fixture: each adapter in turn

STREAM = "nq:flow:6d1a0c52"
META = {"flowId": "6d1a0c52"}


def _line(number: int) -> Event:
    return draft("runner.log", {"level": "info", "msg": f"line {number}"}, META, "example_queue")


async def _next(heard: asyncio.Queue[Event], count: int) -> list[Event]:
    async with asyncio.timeout(20):
        return [await heard.get() for _ in range(count)]


def _told(event: Event) -> Event:
    """What a producer says of an event."""
    copy = Event()
    copy.CopyFrom(event)
    for name in ("id", "stream", "ts"):
        copy.ClearField(name)
    return copy


@pytest.mark.req(
    "R003-1.1.02", "R003-1.1.03", "R003-1.1.04", "R003-1.1.05", "R003-2.2.01", "R003-2.2.02", "R003-2.2.03",
    "R003-3.1.06", "R003-3.1.07", "R003-3.2.01", "R003-3.2.02", "R003-4.1.01", "R003-4.1.02",
)  # fmt: skip
async def test_what_is_read_is_what_append_returned(log: LogStore) -> None:  # noqa: F811
    records = RecordAdapter(log)
    appended = [await records.append(STREAM, _line(number)) for number in range(30)]
    assert await records.read(STREAM) == appended
    assert [_told(record) for record in appended] == [_line(number) for number in range(30)]
    places = [parse_id(record.id) for record in appended]
    assert places == sorted(set(places))
    for record in appended:
        assert record.stream == STREAM
        assert record.ts == codec.iso(parse_id(record.id)[0])
    assert await records.read(STREAM, after=appended[9].id, limit=5) == appended[10:15]
    assert await records.read(STREAM, last=4) == appended[-4:]
    assert await records.read("nq:flow:other") == []


@pytest.mark.req("R003-3.2.01", "R003-3.2.02", "R003-3.2.03", "R003-4.1.02")
@pytest.mark.parametrize("name", EXAMPLES)
async def test_the_examples_of_the_seed_come_back_the_same(log: LogStore, name: str) -> None:  # noqa: F811
    told = _told(codec.from_json(EXAMPLES[name]))
    if name == "3.2 canonical":  # it lacks what section 2.3 requires
        told.meta = told.meta.replace(b'"attempt": 1', b'"stepRunId": "r", "attempt": 1')
    stored = await RecordAdapter(log).append(STREAM, told)
    assert await RecordAdapter(log).read(STREAM) == [stored]
    assert _told(stored) == told, "kind, subject, data, meta and v are unchanged, byte for byte"
    assert codec.from_json(codec.to_json(stored)) == stored


@pytest.mark.req("R003-1.1.18", "R003-1.1.19", "R003-2.3.11")
async def test_what_may_not_be_stored_is_refused(log: LogStore) -> None:  # noqa: F811
    for refused in (draft("runner.log", {}, META), draft("runner.log", {"level": "info"}, {}), _line(1)):
        with pytest.raises(FetchboxError, match="INVALID_PAYLOAD"):
            await RecordAdapter(log, max_bytes=200).append(STREAM, refused)
    assert await RecordAdapter(log).read(STREAM) == []


@pytest.mark.req("R003-3.1.08")
async def test_a_subscriber_gets_each_record_once_until_it_unsubscribes(log: LogStore) -> None:  # noqa: F811
    records = RecordAdapter(log)
    early = [await records.append(STREAM, _line(number)) for number in range(3)]
    everything: asyncio.Queue[Event] = asyncio.Queue()
    fresh: asyncio.Queue[Event] = asyncio.Queue()
    ends = [
        await records.subscribe(STREAM, everything.put_nowait, after=START),
        await records.subscribe(STREAM, fresh.put_nowait),
    ]
    late = [await records.append(STREAM, _line(number)) for number in range(3, 6)]
    assert await _next(everything, 6) == early + late
    assert await _next(fresh, 3) == late
    for end in ends:
        await end()
    await records.append(STREAM, _line(7))
    assert everything.empty()
    assert fresh.empty()


async def test_what_is_no_event_is_left_out(log: LogStore) -> None:  # noqa: F811
    records = RecordAdapter(log)
    await log.append(STREAM, {"payload": b"of somebody else"})
    stored = await records.append(STREAM, _line(1))
    await log.append(STREAM, {**codec.fields(_line(2)), "v": b"two"})
    assert await records.read(STREAM) == [stored]


async def test_an_error_of_a_subscriber_ends_its_subscription_and_is_told() -> None:
    records = RecordAdapter(MemoryLog())
    heard = asyncio.Event()

    def fail(_event: Event) -> None:
        heard.set()
        raise LookupError("no")

    unsubscribe = await records.subscribe(STREAM, fail)
    await records.append(STREAM, _line(1))
    await heard.wait()
    with pytest.raises(LookupError):
        await unsubscribe()


class _Outage(MemoryLog):
    """A store that is away once, in the middle of a subscription."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True

    async def subscribe(self, stream: str, after: str = START, limit: int = 100) -> AsyncGenerator[list[Entry], None]:
        async for entries in super().subscribe(stream, after, 1 if self.is_away else limit):
            yield entries
            if self.is_away:
                self.is_away = False
                raise unavailable("away")


@pytest.mark.req("R003-3.1.08")
async def test_a_subscription_outlives_an_outage_without_a_gap_or_a_repetition() -> None:
    records = RecordAdapter(_Outage())
    appended = [await records.append(STREAM, _line(number)) for number in range(5)]
    heard: asyncio.Queue[Event] = asyncio.Queue()
    unsubscribe = await records.subscribe(STREAM, heard.put_nowait, after=START)
    assert await _next(heard, 5) == appended
    await unsubscribe()
    assert heard.empty()
