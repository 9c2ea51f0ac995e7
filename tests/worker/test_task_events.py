"""Events of an attempt on their way: numbered, in order, one report at a time, bounded."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.task_events import TEXT_LETTERS, Events, TooManyError

Told = list[tuple[str, bytes]]


class Stream:
    """Takes reports and answers when it is told to."""

    def __init__(self) -> None:
        self.first: list[int] = []
        self.told: list[Told] = []
        self.open: list[asyncio.Future[bool]] = []
        self.most_open = 0

    def report(self, first: int, events: Sequence[tuple[str, bytes]]) -> asyncio.Future[bool]:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.first.append(first)
        self.told.append(list(events))
        self.open.append(answer)
        self.most_open = max(self.most_open, len(self.open))
        return answer

    async def answer(self, written: bool = True) -> None:
        for told in self.open:
            told.set_result(written)
        self.open.clear()
        await asyncio.sleep(0)


def joined(events: Sequence[tuple[str, bytes]]) -> list[tuple[str, str]]:
    """The events with neighbouring texts as one."""
    made: list[tuple[str, str]] = []
    for kind, data in events:
        text = json.loads(data)["text"] if kind == "token" else data.decode()
        if kind == "token" and made and made[-1][0] == "token":
            made[-1] = ("token", made[-1][1] + text)
        else:
            made.append((kind, text))
    return made


pieces = st.text(min_size=1, max_size=TEXT_LETTERS)
steps = st.lists(
    st.one_of(st.tuples(st.just("text"), pieces), st.tuples(st.just("add"), st.just("{}")), st.just(("answer", ""))),
    max_size=40,
)


@given(steps)
def test_nothing_is_lost_repeated_or_moved(script: list[tuple[str, str]]) -> None:
    async def run() -> None:
        stream = Stream()
        events = Events(stream.report, 1000, lambda: None)
        expected: Told = []
        for what, value in script:
            if what == "text":
                events.text(value)
                expected.append(("token", json.dumps({"text": value}).encode()))
            elif what == "add":
                events.add("progress", b"{}")
                expected.append(("progress", b"{}"))
            else:
                await stream.answer()
        assert stream.most_open <= 1
        events.finish()
        told = [event for report in stream.told for event in report]
        assert joined(told) == joined(expected)
        assert stream.first == [1 + sum(map(len, stream.told[:index])) for index in range(len(stream.told))]
        assert all(len(data) <= 65_536 for _, data in told)

    asyncio.run(run())


async def test_a_teller_that_is_faster_than_the_stream_waits() -> None:
    stream = Stream()
    events = Events(stream.report, 100_000, lambda: None)
    told = 0

    async def tell() -> None:
        nonlocal told
        while told < 2000:
            events.add("progress", b"{}")
            told += 1
            await events.room()

    teller = asyncio.create_task(tell())
    for _ in range(3000):
        await asyncio.sleep(0)
    held = told
    assert held < 1000, "it waits"
    while not teller.done():
        await stream.answer()
    await teller
    assert sum(map(len, stream.told)) == 2000
    assert max(map(len, stream.told)) <= held


async def test_large_data_waits_sooner() -> None:
    stream = Stream()
    events = Events(stream.report, 100, lambda: None)
    for _ in range(4):
        events.add("found", b'"%s"' % (b"x" * 60_000))
    waiting = asyncio.create_task(events.room())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await stream.answer()
    await waiting


async def test_a_refused_report_ends_it_all() -> None:
    stream, ended = Stream(), list[bool]()
    events = Events(stream.report, 100, lambda: ended.append(True))
    events.add("progress", b"{}")
    events.text("more")
    await stream.answer(written=False)
    assert ended == [True]
    events.finish()
    assert len(stream.told) == 1


async def test_the_limit_counts_events_as_written() -> None:
    stream = Stream()
    events = Events(stream.report, 3, lambda: None)
    events.text("alone")
    for _ in range(50):
        events.text("joined")
    events.add("progress", b"{}")
    with pytest.raises(TooManyError):
        events.add("progress", b"{}")
    events.finish()
    assert [kind for report in stream.told for kind, _ in report] == ["token", "token", "progress"]
