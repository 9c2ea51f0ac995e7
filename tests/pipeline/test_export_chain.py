"""One partition into the lake: every entry once, days apart, and nothing in memory that a death could lose."""

from __future__ import annotations

import pytest

from kernel.log.offsets import parse_id
from pipeline.lake.layout import day_of
from tests.pipeline.export_rig import DAY, NOON, STREAM, Rig, drained


async def test_every_entry_is_in_the_lake_once_in_segments_that_follow_each_other(rig: Rig) -> None:
    rig.config.exporter.max_rows = 40
    ids = await rig.add(100)
    chain = await drained(rig.chain())
    assert await rig.exported() == ids
    stored = await rig.lake.segments("status")
    assert [one.segment.position for one in stored] == ["0-0", ids[39], ids[79]]
    facts = [await rig.lake.facts(one.key) for one in stored]
    assert [(one.first, one.last, one.rows, one.added) for one in facts if one] == [
        (ids[0], ids[39], 40, 40),
        (ids[40], ids[79], 40, 80),
        (ids[80], ids[99], 20, 100),
    ]
    assert chain.written == 100
    assert chain.state is not None
    assert chain.state.position == ids[-1]


async def test_a_new_exporter_goes_on_where_the_last_one_ended(rig: Rig) -> None:
    ids = await rig.add(30)
    await drained(rig.chain())
    before = await rig.bodies()
    again = await drained(rig.chain())
    assert again.written == 0
    ids += await rig.add(5, first=30)
    assert (await drained(rig.chain())).written == 5
    assert await rig.exported() == ids
    assert before.items() <= (await rig.bodies()).items()
    assert await rig.markers() == []


async def test_a_segment_ends_with_the_day(rig: Rig) -> None:
    midnight = 20_001 * DAY
    ids = await rig.add_at(
        [f"{NOON}-0", f"{NOON}-1", f"{midnight - 1}-0", f"{midnight - 1}-7", f"{midnight}-0", f"{midnight + DAY}-0"]
    )
    await drained(rig.chain())
    stored = await rig.lake.segments("status")
    assert [one.segment.day for one in stored] == [day_of(at) for at in (NOON, midnight, midnight + DAY)]
    assert [one.segment.position for one in stored] == ["0-0", ids[3], ids[4]]
    assert await rig.exported() == ids


async def test_bytes_cut_a_segment_too_and_one_that_is_larger_is_one_of_its_own(rig: Rig) -> None:
    rig.config.exporter.max_bytes = 1024
    ids = await rig.add(3)
    large = await rig.say("XADD", STREAM, "*", "payload", b"\x0a\xff\x0f" + b"x" * 2047)
    assert isinstance(large, bytes)
    ids += [large.decode(), *await rig.add(60)]
    await drained(rig.chain())
    assert await rig.exported() == ids
    facts = [await rig.lake.facts(one.key) for one in await rig.lake.segments("status")]
    assert len(facts) > 3
    assert [one.rows for one in facts if one and one.bytes > 1024] == [1]


async def test_large_entries_behind_small_ones_are_not_read_by_the_thousands(rig: Rig) -> None:
    rig.config.exporter.max_bytes = 1 << 20
    ids = await rig.add(400)
    script = "for i = 1, 2500 do redis.call('XADD', KEYS[1], '*', 'payload', string.rep('x', 20000)) end"
    await rig.say("EVAL", script, 1, STREAM)
    before = await _sent(rig)
    chain = rig.chain()
    await chain.step()
    assert chain.state is not None
    assert parse_id(chain.state.position) > parse_id(ids[-1])
    assert await _sent(rig) - before < 25_000_000


async def _sent(rig: Rig) -> int:
    """Bytes that Redis has ever sent."""
    stats = await rig.say("INFO", "stats")
    assert isinstance(stats, dict)
    return int(stats["total_net_output_bytes"])


async def test_ids_that_no_clock_gives_hold_up_nothing(rig: Rig) -> None:
    far = 2**64 - 1
    ids = await rig.add_at(["0-1", "5-18446744073709551615", f"{NOON}-0", f"{10**16}-0", f"{far}-0", f"{far}-{far}"])
    await drained(rig.chain())
    assert await rig.exported() == ids
    assert (await drained(rig.chain())).written == 0
    assert await rig.markers() == []


async def test_what_is_no_message_is_kept_apart_with_its_bytes_before_its_segment_is_written(rig: Rig) -> None:
    ids = await rig.add(3)
    for name, value in ((b"payload", b"\xff\xff"), (b"other", b"\x00\xfe"), (b"\xff", b"")):
        ids.append((await rig.say("XADD", STREAM, "*", name, value)).decode())  # type: ignore[attr-defined]  # bytes
    ids += await rig.add(2, first=3)
    await drained(rig.chain())
    assert await rig.exported() == ids[:3] + ids[6:]
    assert await rig.exported(kind="quarantine") == ids[3:6]
    [apart] = await rig.lake.segments("status", kind="quarantine")
    [segment] = await rig.lake.segments("status")
    assert apart.segment == segment.segment
    assert (await drained(rig.chain())).written == 0


async def test_a_segment_of_nothing_but_quarantine_is_a_link_too(rig: Rig) -> None:
    refused = [(await rig.say("XADD", STREAM, "*", "payload", b"\xff")).decode() for _ in range(3)]  # type: ignore[attr-defined]  # bytes
    await drained(rig.chain())
    ids = await rig.add(2)
    await drained(rig.chain())
    assert await rig.exported() == ids
    assert await rig.exported(kind="quarantine") == refused
    assert [one.segment.position for one in await rig.lake.segments("status")] == ["0-0", refused[-1]]


@pytest.mark.parametrize(("died", "goes_on"), [(4, 10), (10, 4)])
async def test_the_quarantine_of_one_that_died_before_its_segment_is_not_lost(
    rig: Rig, died: int, goes_on: int
) -> None:
    ids = []
    for number in range(12):
        payload = b"\xff" if number % 3 == 1 else b""
        ids.append((await rig.say("XADD", STREAM, "*", "payload", payload)).decode())  # type: ignore[attr-defined]  # bytes
    rig.config.exporter.max_rows = died
    await drained(rig.chain())
    for stored in await rig.lake.segments("status"):
        await rig.resources.objects.delete(rig.lake.bucket, stored.key)
    rig.config.exporter.max_rows = goes_on
    await drained(rig.chain())
    assert await rig.exported() == [one for number, one in enumerate(ids) if number % 3 != 1]
    assert set(await rig.exported(kind="quarantine")) == {one for number, one in enumerate(ids) if number % 3 == 1}
