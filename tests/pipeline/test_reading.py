"""Which files are read: the plan of a table's days, from listings alone."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lake.compaction import OTHERS, CompactFile, Compaction
from pipeline.lake.errors import LakeFileError
from pipeline.lake.layout import LakeSegment, Layout, day_of
from pipeline.lake.store import Stored
from pipeline.spark.reading import File, bins, plan
from pipeline.tables import STATUS

LAYOUT = Layout("lake/")
DAY = date(2026, 11, 27)
NOON = int(datetime(2026, 11, 27, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000


def stored(first: int, *, start: int = 0, partition: int = 0, epoch: int = 1, size: int = 1000) -> Stored:
    """A segment whose first entry has the time `first` (ms), behind `start`."""
    segment = LakeSegment.behind(STATUS, partition, epoch, f"{start}-0", f"{first}-0")
    return Stored(segment, LAYOUT.segment(segment), size, first)


def compaction(
    replaces: Sequence[Stored], *, generation: int = 1, more: Sequence[str] = (), day: date = DAY
) -> Compaction:
    key = f"{LAYOUT.compaction(STATUS.name, day, generation).removesuffix('.json')}/a/{OTHERS}/00000.parquet"
    file = CompactFile(key, OTHERS, 1, 500, "")
    keys = (*(one.key for one in replaces), *more)
    return Compaction(STATUS.name, day.isoformat(), generation, 0, 1, (), (file,), keys)


def names(files: Sequence[File]) -> set[str]:
    return {file.key for file in files}


def test_segments_of_one_epoch_are_read_as_they_are() -> None:
    one, two = stored(NOON), stored(NOON + HOUR, start=NOON)
    found = plan([one, two], [])
    assert names(found.single) == {one.key, two.key}
    assert not found.doubtful


def test_a_compaction_stands_for_what_it_replaces_even_if_that_comes_back() -> None:
    one, two = stored(NOON), stored(NOON + HOUR, start=NOON)
    done = compaction([one, two])
    found = plan([one, two], [done])
    assert names(found.files) == {done.files[0].key}
    assert not found.doubtful


def test_the_newest_compaction_counts_and_all_that_any_of_them_replaced_does_not() -> None:
    one, late = stored(NOON), stored(NOON + HOUR, start=NOON)
    first = compaction([one])
    second = compaction([late], generation=2, more=[first.files[0].key])
    found = plan([one, late], [second, first])
    assert names(found.single) == {second.files[0].key}
    assert not found.doubtful


def test_what_came_after_a_compaction_is_compared_with_it() -> None:
    one, late, other_day = stored(NOON), stored(NOON + HOUR, start=NOON), stored(NOON + 24 * HOUR, start=NOON + HOUR)
    done = compaction([one])
    found = plan([one, late, other_day], [done])
    assert names(found.doubtful) == {late.key, done.files[0].key}
    assert names(found.single) == {other_day.key}


def test_only_the_day_and_partition_with_two_epochs_is_doubtful() -> None:
    before, old, new = stored(NOON - 24 * HOUR), stored(NOON, start=NOON - HOUR), stored(NOON + 1, epoch=2)
    other = stored(NOON, partition=1)
    found = plan([before, old, new, other], [])
    assert names(found.doubtful) == {old.key, new.key}
    assert names(found.single) == {before.key, other.key}


def test_a_day_that_begins_in_two_ways_is_doubtful() -> None:
    # One exporter saw an entry of the day before and went on behind it; the other came when that entry was deleted.
    midnight = NOON - 12 * HOUR
    found_gone = stored(NOON, start=midnight - HOUR)
    saw_it, went_on = stored(midnight - 1, start=midnight - HOUR), stored(NOON, start=midnight - 1)
    found = plan([found_gone, saw_it, went_on], [])
    assert names(found.doubtful) == {found_gone.key, went_on.key}
    assert names(found.single) == {saw_it.key}


def test_an_empty_object_is_named_and_not_passed_over() -> None:
    empty = stored(NOON, size=0)
    with pytest.raises(LakeFileError, match=f"{empty.key} is no Parquet file: it has 0 bytes"):
        plan([empty], [])


def test_nothing_is_a_plan_too() -> None:
    assert not plan([], []).files


@given(st.lists(st.integers(12, 200), max_size=40), st.integers(1, 300))
def test_groups_hold_every_key_once_and_little_more_than_was_asked(sizes: list[int], most: int) -> None:
    files = [File(f"{number:03}", size) for number, size in enumerate(sizes)]
    groups = bins(files, most)
    assert sorted(key for group in groups for key in group) == [file.key for file in files]
    by_key = {file.key: file.size for file in files}
    assert all(len(group) == 1 or sum(by_key[key] for key in group) <= most for group in groups)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Stored], list[Compaction], dict[str, set[int]]]:
    """Three days of one partition: epochs that overlap, cut into segments anywhere, some days compacted meanwhile."""
    times = sorted(draw(st.sets(st.integers(0, 71), min_size=1, max_size=24)))
    entries = [NOON - 12 * HOUR + hour * HOUR + 1 for hour in times]
    segments: list[Stored] = []
    held: dict[str, set[int]] = {}
    begin = 0
    for epoch in range(1, draw(st.integers(1, 3)) + 1):
        last = entries[begin - 1] if begin else 0
        cuts: list[list[int]] = []
        for entry in entries[begin:]:
            if not cuts or day_of(cuts[-1][-1]) != day_of(entry) or draw(st.booleans()):
                cuts.append([])
            cuts[-1].append(entry)
        for rows in cuts:
            segments.append(stored(rows[0], start=last, epoch=epoch))
            held[segments[-1].key] = set(rows)
            last = rows[-1]
        begin = draw(st.integers(0, len(entries) - 1))
    return segments, _compactions(draw, segments, held), held


def _compactions(draw: st.DrawFn, segments: list[Stored], held: dict[str, set[int]]) -> list[Compaction]:
    done = []
    for day in (DAY + timedelta(days=number) for number in range(3)):
        of_day = [one for one in segments if one.segment.day == day]
        seen = of_day[: draw(st.integers(0, len(of_day)))]
        if seen and draw(st.booleans()):
            done.append(compaction(seen, day=day))
            held[done[-1].files[0].key] = set().union(*(held[one.key] for one in seen))
    return done


@given(histories())
def test_every_entry_is_in_the_plan_and_twice_only_where_it_is_doubtful(
    history: tuple[list[Stored], list[Compaction], dict[str, set[int]]],
) -> None:
    segments, compactions, held = history
    found = plan(segments, compactions)
    single = Counter(entry for file in found.single for entry in held[file.key])
    doubtful = {entry for file in found.doubtful for entry in held[file.key]}
    assert max(single.values(), default=0) <= 1
    assert not set(single) & doubtful
    assert set(single) | doubtful == set().union(*(held[one.key] for one in segments))
