"""Log lines of an attempt never stand before the event that it has begun, whatever comes in which order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_rig import ADAPTERS, agree, append_of, begun, end, opened, start, whole

from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event
from flows.journal.journal import Append, Journal
from flows.model import kinds
from flows.model.events import data_of, draft, meta_of
from flows.model.state import state_of
from flows.model.types import Appended, FlowState, Run, RunGoneError
from tests.examples import most

_MOST: Final = 12
_STEPS: Final = ("fetch", "resize it")
_OPENS: Final = (kinds.STEP_ATTEMPT_STARTED, kinds.STEP_ATTEMPT_FAILED, kinds.STEP_ATTEMPT_COMPLETED)

_Attempt: TypeAlias = tuple[str, int]
"""A step and the number of an attempt at it."""
_attempts: Final = st.tuples(st.sampled_from(_STEPS), st.integers(1, 3))
_acts: Final = st.lists(
    st.one_of(
        st.tuples(st.just("lines"), st.lists(_attempts, min_size=1, max_size=4)),
        st.tuples(st.just("events"), st.lists(st.tuples(st.sampled_from(_OPENS), _attempts), min_size=1, max_size=3)),
        st.tuples(st.just("again"), st.just([])),
    ),
    max_size=12,
)


def _event(run: Run, kind: str, attempt: _Attempt, **data: object) -> Event:
    step, number = attempt
    meta = {"flowId": run.flow_id, "stepKey": step, "stepRunId": f"{step}-{number}", "attempt": number}
    return draft(kind, data if kind == kinds.LOG else {"stepKey": step, **data}, meta)


@dataclass
class _Told:
    """What a test has told a journal, and what that said of it."""

    journal: Journal
    run: Run
    revision: int = 1
    lines: int = 0
    dropped: set[str] = field(default_factory=set)
    texts: dict[_Attempt, list[str]] = field(default_factory=dict)
    batch: tuple[Append, Appended] | None = None

    async def log(self, attempts: Sequence[_Attempt]) -> None:
        events = []
        for attempt in attempts:
            text = str(self.lines)
            self.lines += 1
            self.texts.setdefault(attempt, []).append(text)
            events.append(_event(self.run, kinds.LOG, attempt, level="info", msg=text))
        made = append_of(self.run, events, FlowState(), None)
        append = replace(made, writes=tuple(replace(write, waits=True) for write in made.writes))
        appended = await self.journal.append(append)
        self.batch = append, appended
        for event, fate in zip(events, appended.fates, strict=True):
            text = str(data_of(event)["msg"])
            assert fate in ("held", "dropped") or data_of(fate)["msg"] == text
            if fate == "dropped":
                self.dropped.add(text)

    async def again(self) -> None:
        """A repetition of the last batch says the same, and stores nothing."""
        if self.batch is not None:
            before = await whole(self.journal, self.run, VIEW_TIMELINE)
            assert (await self.journal.append(self.batch[0])).fates == self.batch[1].fates
            assert await whole(self.journal, self.run, VIEW_TIMELINE) == before

    async def tell(self, events: Sequence[Event]) -> None:
        state = state_of(await whole(self.journal, self.run, VIEW_TIMELINE))
        appended = await self.journal.append(append_of(self.run, events, state, self.revision))
        assert [event.kind for event in appended.events] == [event.kind for event in events]
        self.revision = appended.revision


def _opened(timeline: Sequence[Event], attempt: _Attempt) -> int:
    """Where the first event stands that says that an attempt, or a later one of its step, has begun."""
    for place, event in enumerate(timeline):
        meta = meta_of(event)
        if event.kind in _OPENS and meta.step_key == attempt[0] and meta.attempt >= attempt[1]:
            return place
    return len(timeline)


def _check(told: _Told, timeline: Sequence[Event], tail: int) -> set[str]:
    """No line comes too early; `tail`: what is behind that was held to the end. The lines that are there."""
    found: dict[_Attempt, list[str]] = {}
    for place, event in enumerate(timeline):
        if event.kind == kinds.LOG:
            attempt = meta_of(event).step_key, meta_of(event).attempt
            found.setdefault(attempt, []).append(str(data_of(event)["msg"]))
            assert place > _opened(timeline, attempt) or place >= tail, "a line before its attempt"
    for attempt, texts in found.items():
        kept = [text for text in told.texts[attempt] if text not in told.dropped]
        assert texts == kept[: len(texts)], "once, in order"
        assert texts == kept or _opened(timeline, attempt) == len(timeline), "nothing waits that may go"
    return {text for texts in found.values() for text in texts}


@pytest.mark.parametrize("kind", ADAPTERS)
@settings(max_examples=most(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=_acts)
async def test_no_line_comes_before_its_attempt_and_none_is_lost(
    request: pytest.FixtureRequest, kind: str, acts: list[tuple[str, list]]
) -> None:
    addr = ""
    if kind == "redis":
        valkey = request.getfixturevalue("valkey")
        valkey.flush()
        addr = valkey.addr
    with tempfile.TemporaryDirectory() as folder:
        async with opened(kind, Path(folder) / "log", addr, max_logs=_MOST) as journal:
            run = await begun(journal)
            await journal.append(append_of(run, [start(run)], FlowState(), 0))
            told = _Told(journal, run)
            for act, given_ in acts:
                if act == "lines":
                    await told.log(given_)
                elif act == "again":
                    await told.again()
                else:
                    await told.tell([_event(run, opens, attempt) for opens, attempt in given_])
                timeline = await whole(journal, run, VIEW_TIMELINE)
                _check(told, timeline, len(timeline))
            before = len(timeline) if acts else 1
            await told.tell([end(run)])
            timeline = await whole(journal, run, VIEW_TIMELINE)
            assert timeline[-1].kind == kinds.FLOW_COMPLETE
            assert _check(told, timeline, before) == {str(n) for n in range(told.lines)} - told.dropped
            assert len(told.dropped) == max(0, told.lines - _MOST)
            await agree(journal, run)
            with pytest.raises(RunGoneError):
                await told.log([("fetch", 1)])
