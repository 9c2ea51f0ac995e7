"""Where a stream does not go on as it was exported, a new epoch says so: nothing is missing without a word."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.telemetry import metrics
from tests.examples import most
from tests.pipeline.export_rig import STREAM, Rig, drained, twice


def _told(reason: str) -> tuple[float, float]:
    holes = metrics.REGISTRY.get_sample_value("fetchbox_export_holes_total", {"topic": "jobs.status", "reason": reason})
    missing = metrics.REGISTRY.get_sample_value("fetchbox_export_missing_entries_total", {"topic": "jobs.status"})
    return holes or 0, missing or 0


async def test_entries_that_were_trimmed_before_they_were_read_are_a_hole_of_known_size(rig: Rig) -> None:
    first = await rig.add(10)
    await drained(rig.chain())
    lost = await rig.add(7)
    kept = await rig.add(3)
    await rig.say("XTRIM", STREAM, "MINID", kept[0])
    holes, missing = _told("hole")
    await drained(rig.chain())
    assert await rig.exported() == [*first, *kept]
    [marker] = await rig.markers()
    assert (marker.reason, marker.epoch, marker.missing) == ("hole", 2, len(lost))
    assert (marker.after, marker.start, marker.until) == (first[-1], first[-1], kept[-1])
    assert _told("hole") == (holes + 1, missing + len(lost))
    assert (await drained(rig.chain())).written == 0
    assert len(await rig.markers()) == 1


async def test_entries_that_were_deleted_one_by_one_are_a_hole_too(rig: Rig) -> None:
    ids = await rig.add(5)
    await drained(rig.chain())
    ids += await rig.add(5)
    await rig.say("XDEL", STREAM, ids[2], ids[6], ids[8])
    await drained(rig.chain())
    assert await rig.exported() == [*ids[:6], ids[7], ids[9]]
    assert [(one.reason, one.missing) for one in await rig.markers()] == [("hole", 2)]


async def test_all_that_is_new_may_be_gone(rig: Rig) -> None:
    ids = await rig.add(5)
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    await rig.add(4)
    await rig.say("XTRIM", STREAM, "MAXLEN", 0)
    await exporter.turn()
    assert [(one.reason, one.missing) for one in await rig.markers()] == [("hole", 4)]
    ids += await rig.add(2)
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == ids
    assert len(await rig.markers()) == 1


async def test_what_was_exported_may_go_and_so_may_what_went_before_the_first_export(rig: Rig) -> None:
    await rig.add(5)
    await rig.say("XTRIM", STREAM, "MAXLEN", 2)
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    assert len(await rig.exported()) == 2
    await rig.say("XTRIM", STREAM, "MAXLEN", 0)
    await rig.add(3)
    await exporter.finish(lambda *_: None)
    assert (await drained(rig.chain())).written == 0
    assert len(await rig.exported()) == 5
    assert await rig.markers() == []


async def test_a_hole_in_the_first_backlog_is_one_although_the_exporter_never_came_to_its_end(rig: Rig) -> None:
    rig.config.exporter.max_rows = 2
    exporter = rig.partition()
    ids = await rig.add(10)
    assert await rig.chain().step()
    await rig.say("XTRIM", STREAM, "MINID", ids[5])
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == [*ids[:2], *ids[5:]]
    assert [(one.reason, one.missing) for one in await rig.markers()] == [("hole", 3)]


@pytest.mark.parametrize("again", [0, 3, 50], ids=["nothing", "less", "more"])
async def test_a_stream_that_was_deleted_begins_a_new_epoch(rig: Rig, again: int) -> None:
    first = await rig.add(10)
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    await rig.say("DEL", STREAM)
    second = await rig.add(again) if again else []
    await exporter.turn()
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == [*first, *second]
    assert [(one.reason, one.epoch, one.after) for one in await rig.markers()] == [("rewritten", 2, first[-1])]
    await exporter.turn()
    third = await rig.add(2)
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == [*first, *second, *third]
    assert len(await rig.markers()) == 1


async def test_ids_that_went_back_are_read_from_the_beginning(rig: Rig) -> None:
    first = await rig.add(4)
    await drained(rig.chain())
    await rig.say("DEL", STREAM)
    second = await rig.add_at(["1000-0", "1000-1", "2000-0"])
    await drained(rig.chain())
    assert await rig.exported(epoch=1) == first
    assert await rig.exported(epoch=2) == second
    assert [(one.reason, one.start) for one in await rig.markers()] == [("rewritten", "0-0")]


async def test_a_stream_that_went_with_all_that_nobody_had_read_is_told_too(rig: Rig) -> None:
    exporter = rig.partition()
    await rig.add(5)
    await exporter.turn()
    await rig.say("DEL", STREAM)
    await exporter.turn()
    assert [(one.reason, one.after) for one in await rig.markers()] == [("rewritten", "0-0")]


async def test_an_exporter_that_was_overtaken_by_an_epoch_follows(rig: Rig) -> None:
    ids = await rig.add(4)
    slow = rig.chain()
    await slow.step()
    await drained(slow)
    lost = await rig.add(2)
    kept = await rig.add(2)
    await rig.say("XDEL", STREAM, lost[0])
    await drained(rig.chain())
    assert slow.state is not None
    assert slow.state.epoch == 1
    await drained(slow)
    more = await rig.add(3)
    await drained(slow)
    assert slow.state.epoch == 2
    assert await rig.exported() == [*ids, lost[1], *kept, *more]
    assert len(await rig.markers()) == 1


_DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9)),
        st.tuples(st.just("trim"), st.integers(0, 6)),
        st.tuples(st.just("delete"), st.integers(0, 8)),
        st.tuples(st.just("export"), st.integers(0, 2)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
    ),
    max_size=12,
)


@settings(max_examples=most(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=_DEEDS)
async def test_whatever_is_done_to_a_stream_all_of_it_is_in_the_lake_once_or_counted_as_missing(
    rig: Rig, deeds: list[tuple[str, int]]
) -> None:
    await rig.say("FLUSHALL")
    for key in await rig.resources.objects.list(rig.lake.bucket, rig.lake.layout.root):
        await rig.resources.objects.delete(rig.lake.bucket, key.key)
    rig.config.exporter.max_rows = 5
    exporters = [rig.partition() for _ in range(3)]
    given_ids = await rig.add(1)
    await exporters[0].finish(lambda *_: None)
    for deed, number in [*deeds, ("export", 0)]:
        if deed == "add":
            given_ids += await rig.add(number, first=len(given_ids))
        elif deed == "trim":
            await rig.say("XTRIM", STREAM, "MAXLEN", number)
        elif deed == "delete" and number < len(given_ids):
            await rig.say("XDEL", STREAM, given_ids[number])
        elif deed == "export":
            await exporters[number].finish(lambda *_: None)
        elif deed == "restart":
            exporters[number] = rig.partition()
    found = await rig.exported()
    assert twice(found) == []
    assert len(found) + sum(marker.missing for marker in await rig.markers()) == len(given_ids)
    assert set(found) <= set(given_ids)
