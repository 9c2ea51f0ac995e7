"""The journal in files and in memory: what survives a crash, what lies on the disk, what a ring keeps."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from journal_rig import MAX_LOGS, agree, append_of, begun, line, opened, started, story, tell, whole

from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_TIMELINE
from flows.journal.journal import VIEWS, Journal, stream_of
from flows.journal.log_journal import LogJournal
from flows.model.state import state_of
from flows.model.types import FlowState, Run, RunGoneError
from kernel.log.file import FileLog, folder_name
from kernel.log.memory import MemoryLog
from kernel.log.segments import segments
from kernel.log.store import Fields

_PROCESS = Path(__file__).with_name("journal_process.py")


async def _killed(folder: Path, writes: int) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, str(_PROCESS), str(folder), str(writes))
    assert await process.wait() == -9


async def _finished(journal: Journal, run: Run) -> None:
    """Tells the rest of the story to a run whose process died, and finds nothing missing."""
    again = await journal.open(run, "digest", {})
    timeline = await whole(journal, run, VIEW_TIMELINE)
    if timeline:
        await agree(journal, run)
    revision, told = again.revision, 0
    for events in story(run):
        told += len(events)
        if told > len(timeline):
            state = state_of(await whole(journal, run, VIEW_TIMELINE))
            revision = (await journal.append(append_of(run, events, state, revision))).revision
    await agree(journal, run)
    timeline = await whole(journal, run, VIEW_TIMELINE)
    assert [event.kind for event in timeline] == [event.kind for events in story(run) for event in events]


@pytest.mark.parametrize("writes", [0, 2, 14])
async def test_the_next_process_adds_what_a_killed_one_left_out(tmp_path: Path, writes: int) -> None:
    await _killed(tmp_path, writes)
    async with opened("file", tmp_path) as journal:
        await _finished(journal, Run("run-1", "example-flow"))


class _CutOffError(Exception):
    pass


class _Mortal(MemoryLog):
    """What is written stays; the writer has so many writes to live."""

    left = 0

    async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
        if self.left == 0:
            raise _CutOffError
        self.left -= 1
        return await super().append_many(stream, entries)


async def test_a_writer_may_die_before_any_write() -> None:
    run = Run("run-1", "example-flow")
    for writes in range(1000):
        log = _Mortal()
        log.left = writes
        first = LogJournal(log)
        await first.open(run, "digest", {})
        try:
            await tell(first, run, story(run))
        except _CutOffError:
            log.left = -1
            await _finished(LogJournal(log), run)
        else:
            break
    assert writes > 20


async def test_projections_that_could_not_be_written_are_added_by_the_next_append(tmp_path: Path) -> None:
    class Full(MemoryLog):
        full = False

        async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
            if self.full and ":proj:" in stream:
                raise OSError("no space left")
            return await super().append_many(stream, entries)

    log = Full()
    journal = LogJournal(log)
    run = await begun(journal)
    chapters = story(run)
    await journal.append(append_of(run, chapters[0], FlowState(), 0))
    log.full = True
    with pytest.raises(OSError, match="no space"):
        await journal.append(append_of(run, [line(run, "one")], FlowState(), None))
    log.full = False
    await journal.append(append_of(run, [line(run, "two")], FlowState(), None))
    await agree(journal, run)
    assert len(await whole(journal, run, VIEW_LOGS)) == 2


@pytest.mark.req("R003-3.1.03", "R003-3.1.04", "R003-3.3.09")
async def test_files_are_lines_of_json_that_rotate_into_gzip(tmp_path: Path) -> None:
    async with opened("file", tmp_path) as journal:
        run = await started(journal)
        for n in range(MAX_LOGS):
            await journal.append(append_of(run, [line(run, f"{n} {'x' * 200}")], FlowState(), None))
        timeline = await whole(journal, run, VIEW_TIMELINE)
    folder = tmp_path / folder_name(stream_of(run, VIEW_TIMELINE))
    files = [segment.path for segment in segments(folder)]
    assert [path.suffixes for path in files[:2]] == [[".jsonl", ".gz"]] * 2
    texts = [gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files]
    entries = [json.loads(text) for whole_text in texts for text in whole_text.splitlines()]
    assert [entry["id"] for entry in entries] == [event.id for event in timeline]
    assert [entry["fields"]["kind"] for entry in entries] == [event.kind for event in timeline]
    assert [json.loads(entry["fields"]["data"]) for entry in entries] == [json.loads(event.data) for event in timeline]
    async with opened("file", tmp_path) as later:
        assert await whole(later, run, VIEW_TIMELINE) == timeline


@pytest.mark.req("R003-3.01")
async def test_five_folders_and_no_more_are_stored_of_a_run(tmp_path: Path) -> None:
    async with opened("file", tmp_path) as journal:
        run = await begun(journal)
        await tell(journal, run, story(run))
    assert _folders(tmp_path) == {folder_name(stream_of(run, view)) for view in VIEWS}


def _folders(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


@pytest.mark.req("R003-3.1.05")
async def test_memory_is_a_ring_a_stream() -> None:
    journal = LogJournal(MemoryLog(capacity=5), max_logs=100)
    run, other = await started(journal), await started(journal, "run-2")
    stored = []
    for n in range(20):
        stored += (await journal.append(append_of(run, [line(run, f"{n}")], FlowState(), None))).events
    assert await whole(journal, run, VIEW_TIMELINE) == stored[-5:]
    assert len(await whole(journal, other, VIEW_TIMELINE)) == 1
    await journal.close()


async def test_what_other_processes_left_is_known_by_its_timeline(tmp_path: Path) -> None:
    async with opened("file", tmp_path) as journal:
        run = await begun(journal)
        told = await tell(journal, run, story(run)[:-1])
    async with opened("file", tmp_path) as later:
        assert await later.name_of("run-1") == "example-flow"
        state = state_of(await whole(later, run, VIEW_TIMELINE))
        await later.append(append_of(run, story(run)[-1], state, told[-1].revision))
        with pytest.raises(RunGoneError):
            await later.append(append_of(run, [line(run, "late")], FlowState(), None))
        await agree(later, run)


async def test_one_process_writes(tmp_path: Path) -> None:
    async with opened("file", tmp_path) as journal:
        run = await begun(journal)
        await tell(journal, run, story(run))
        reader = LogJournal(FileLog(tmp_path))
        assert await whole(reader, run, VIEW_TIMELINE) == await whole(journal, run, VIEW_TIMELINE)
        await reader.close()
