"""What every journal does: on Redis, in files, in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from journal_rig import (
    ADAPTERS,
    MAX_LOGS,
    agree,
    append_of,
    begun,
    end,
    line,
    of_step,
    opened,
    start,
    started,
    story,
    tell,
    whole,
)

from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_RUNS, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_TIMELINE
from flows.journal.journal import VIEWS, Append, Journal, stream_of
from flows.journal.log_journal import LogJournal
from flows.journal.redis_journal import RedisJournal
from flows.model import kinds
from flows.model.events import data_of
from flows.model.state import state_of
from flows.model.types import Appended, ConflictError, FlowState, Run, RunGoneError, Write
from kernel.log.offsets import parse_id


@pytest.fixture(params=ADAPTERS)
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    addr = request.getfixturevalue("redis_server") if request.param == "redis" else ""
    async with opened(request.param, tmp_path / "log", addr) as made:
        yield made


async def test_a_run_is_opened_once(journal: Journal) -> None:
    run = Run("run-1", "example-flow")
    first = await journal.open(run, "digest", {"tenant": b"a"})
    again = await journal.open(run, "another", {"tenant": b"b"})
    assert (first.created, again.created) == (True, False)
    assert (again.digest, again.revision) == ("digest", 0)
    assert await journal.name_of("run-1") == "example-flow"
    assert await journal.name_of("run-2") is None


@pytest.mark.req("R003-3.4.04", "R003-goals.01", "R003-2.1.01", "R003-2.2.02", "R003-2.2.03")
async def test_what_is_read_is_what_was_appended(journal: Journal) -> None:
    run = await begun(journal)
    told = await tell(journal, run, story(run))
    timeline = await whole(journal, run, VIEW_TIMELINE)
    assert timeline == [event for appended in told for event in appended.events]
    assert [event.kind for event in timeline] == [event.kind for chapter in story(run) for event in chapter]
    for stored, published in zip(timeline, (event for chapter in story(run) for event in chapter), strict=True):
        assert (stored.data, stored.meta, stored.subject) == (published.data, published.meta, published.subject)
        assert stored.stream == "nq:flow:run-1"
    assert await journal.read(run, VIEW_TIMELINE, timeline[3].id, 2) == timeline[4:6]
    for view in VIEWS:
        places = [parse_id(event.id) for event in await whole(journal, run, view)]
        assert places == sorted(set(places))


@pytest.mark.req("R003-2.1.02", "R003-2.1.03", "R003-2.1.04", "R003-2.1.05", "R003-3.3.01", "R003-1.3.04")
async def test_projections_are_in_step_with_the_timeline(journal: Journal) -> None:
    run = await begun(journal)
    state, revision = FlowState(), 0
    for events in story(run):
        revision = (await journal.append(append_of(run, events, state, revision))).revision
        state = state_of(await whole(journal, run, VIEW_TIMELINE))
        await agree(journal, run)
    named = {view: {event.stream for event in await whole(journal, run, view)} for view in VIEWS}
    assert named == {
        VIEW_TIMELINE: {"nq:flow:run-1"},
        VIEW_SNAPSHOT: {"nq:proj:flow:example-flow:run-1"},
        VIEW_STEPS: {"nq:proj:flow-steps:run-1"},
        VIEW_LOGS: {"nq:proj:flow-step-index:run-1"},
        VIEW_RUNS: {"nq:proj:flow-runs:example-flow"},
    }
    # Patches tell what changed: none of them says again how the run began.
    patches = [data_of(event) for event in await whole(journal, run, VIEW_SNAPSHOT)]
    assert ["startedAt" in patch for patch in patches].count(True) == 1


async def test_the_fence_lets_one_of_two_writers_through(journal: Journal) -> None:
    run, revision = await started(journal), 1
    before = await whole(journal, run, VIEW_TIMELINE)
    state = state_of(before)
    ends = append_of(run, [end(run)], state, revision)
    first = await journal.append(append_of(run, [of_step(run, kinds.STEP_SCHEDULED, 1)], state, revision))
    with pytest.raises(ConflictError):
        await journal.append(ends)
    with pytest.raises(ConflictError):
        await journal.append(append_of(run, [start(run)], FlowState(), 0))
    assert await whole(journal, run, VIEW_TIMELINE) == [*before, *first.events]
    await agree(journal, run)


@pytest.mark.req("R003-3.3.08")
async def test_a_run_is_indexed_once(journal: Journal) -> None:
    run, other = await begun(journal), await begun(journal, "run-2")
    begin = append_of(run, [start(run)], FlowState(), 0)
    appended = await journal.append(begin)
    for _ in range(2):
        with pytest.raises(ConflictError):
            await journal.append(begin)
    await tell(journal, other, story(other))
    indexed = [data_of(event) for event in await whole(journal, run, VIEW_RUNS)]
    assert [entry["id"] for entry in indexed] == ["run-1", "run-2"]
    assert indexed[0]["sourceId"] == appended.events[0].id


async def test_a_run_that_ended_or_is_unknown_takes_nothing(journal: Journal) -> None:
    run = await begun(journal)
    told = await tell(journal, run, story(run))
    before = await whole(journal, run, VIEW_TIMELINE)
    revision = told[-1].revision
    stranger = Run("run-9", "example-flow")
    unborn = await begun(journal, "run-2")
    misnamed = Run("run-1", "another-flow")
    for late in (
        append_of(run, [of_step(run, kinds.STEP_ATTEMPT_STARTED, 2)], state_of(before), revision),
        append_of(run, [line(run, "late")], FlowState(), None),
        append_of(unborn, [line(unborn, "early")], FlowState(), None),
        append_of(stranger, [start(stranger)], FlowState(), 0),
        append_of(misnamed, [line(misnamed, "lost")], FlowState(), None),
    ):
        with pytest.raises(RunGoneError):
            await journal.append(late)
    assert await whole(journal, run, VIEW_TIMELINE) == before
    assert not await whole(journal, stranger, VIEW_TIMELINE)
    assert not await whole(journal, misnamed, VIEW_SNAPSHOT)
    await agree(journal, run)


@pytest.mark.req("R003-3.3.07", "R003-3.3.08", "R003-3.4.03")
async def test_log_lines_are_stored_once_and_referenced(journal: Journal) -> None:
    run, revision = await started(journal), 1
    lines = append_of(run, [line(run, f"payload-{n}") for n in range(3)], FlowState(), None)
    first = await journal.append(lines)
    assert first.revision == revision
    assert await journal.append(lines) == first
    await journal.append(append_of(run, [line(run, "payload-3"), line(run, "payload-4", "")], FlowState(), None))
    timeline = await whole(journal, run, VIEW_TIMELINE)
    references = await whole(journal, run, VIEW_LOGS)
    assert [data_of(record)["ref"] for record in references] == [
        {"stream": "nq:flow:run-1", "id": event.id}
        for event in timeline
        if event.kind == kinds.LOG and b"payload-4" not in event.data
    ]
    assert sum(event.data.count(b"payload-") for event in timeline) == 5
    for view in VIEWS[1:]:
        assert not any(b"payload-" in event.data for event in await whole(journal, run, view))


async def test_an_old_batch_is_told_while_others_log_too(journal: Journal) -> None:
    run = await started(journal)
    batches = [append_of(run, [line(run, f"{n}")], FlowState(), None) for n in range(5)]
    stored = [await journal.append(batch) for batch in batches]
    assert [await journal.append(batch) for batch in batches] == stored
    assert len(await whole(journal, run, VIEW_TIMELINE)) == 1 + 5


async def test_lines_beyond_the_most_are_left_out_with_their_references(journal: Journal) -> None:
    run = await started(journal)
    await journal.append(append_of(run, [line(run, f"{n}") for n in range(MAX_LOGS - 2)], FlowState(), None))
    cut = append_of(run, [line(run, f"cut {n}") for n in range(5)], FlowState(), None)
    appended = await journal.append(cut)
    assert [data_of(event)["msg"] for event in appended.events] == ["cut 0", "cut 1"]
    assert await journal.append(cut) == appended
    assert (await journal.append(append_of(run, [line(run, "none")], FlowState(), None))).events == ()
    assert len(await whole(journal, run, VIEW_TIMELINE)) == 1 + MAX_LOGS
    assert len(await whole(journal, run, VIEW_LOGS)) == MAX_LOGS
    # Only log lines are limited.
    assert len((await journal.append(append_of(run, [end(run)], FlowState(), 1))).events) == 1


async def test_many_runs_at_once(journal: Journal) -> None:
    runs = [await begun(journal, f"run-{n}") for n in range(20)]
    appends = [append_of(run, [start(run)], FlowState(), 0) for run in runs]
    appends[3] = dataclasses.replace(appends[3], fence=7)
    unknown = Run("run-99", "example-flow")
    appends[5] = append_of(unknown, [start(unknown)], FlowState(), 0)
    outcomes = await journal.append_many([*appends, appends[0]])
    kinds_of = [type(outcome) for outcome in outcomes]
    assert kinds_of[3] is ConflictError
    assert kinds_of[5] is RunGoneError
    assert kinds_of[-1] is ConflictError
    assert all(kind is Appended for n, kind in enumerate(kinds_of[:-1]) if n not in {3, 5})
    indexed = [data_of(event)["id"] for event in await whole(journal, runs[0], VIEW_RUNS)]
    assert indexed == [run.flow_id for n, run in enumerate(runs) if n not in {3, 5}]


@pytest.mark.req("R003-2.01")
async def test_what_is_stored_never_changes(journal: Journal) -> None:
    run = await begun(journal)
    seen: dict[int, list[bytes]] = {view: [] for view in VIEWS}
    state, revision = FlowState(), 0
    for events in story(run):
        appended = await journal.append(append_of(run, events, state, revision))
        revision = appended.revision
        # What a reader or a publisher does with its copy is no matter of the store's.
        appended.events[0].data = b'{"changed":1}'
        events[0].kind = "flow.start"
        for view in VIEWS:
            now = [event.SerializeToString() for event in await whole(journal, run, view)]
            assert now[: len(seen[view])] == seen[view]
            seen[view] = now
        state = state_of(await whole(journal, run, VIEW_TIMELINE))
    assert not any(b"changed" in record for records in seen.values() for record in records)


@pytest.mark.req("R003-2.01")
@pytest.mark.parametrize("adapter", [RedisJournal, LogJournal])
def test_no_adapter_can_change_or_remove_a_record(adapter: type) -> None:
    public = {name for name in vars(adapter) if not name.startswith("_")}
    lives = {"name", "start", "drain", "stop", "close"}
    assert public <= {"open", "name_of", "append", "append_many", "read", "load", *lives}


@pytest.mark.req("R003-2.1.06", "R003-2.1.07")
def test_names_of_streams_are_tokens_between_colons() -> None:
    run = Run("0196f3a8-7c1e-7000-8000-00000000000a", "my_flow-2")
    for view in VIEWS:
        tokens = stream_of(run, view).split(":")
        assert tokens[0] == "nq"
        assert all(token and token.replace("-", "").replace("_", "").isalnum() for token in tokens)
    assert stream_of(run, VIEW_LOGS) == f"nq:proj:flow-step-index:{run.flow_id}"


async def test_an_append_is_neither_empty_nor_endless(journal: Journal) -> None:
    run = await begun(journal)
    for writes in ((), (Write(start(run)),) * 1001):
        with pytest.raises(ValueError, match="1 to 1000 records"):
            await journal.append(Append(run, writes, 0))
