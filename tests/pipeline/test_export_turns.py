"""When segments are written, and what is told of it: by age though nothing comes any more, by rows, by bytes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from google.protobuf.duration_pb2 import Duration

from kernel.errors import FetchboxError
from kernel.log.exported import Exported
from kernel.redis import keys
from kernel.telemetry import metrics
from pipeline.bootstrap import build, wired
from tests.pipeline.export_rig import STREAM, Rig


async def _aged(rig: Rig, count: int, seconds: int) -> list[str]:
    now = await rig.resources.redis.now_ms()
    return await rig.add_at([f"{now - seconds * 1000}-{number}" for number in range(count)])


async def test_an_entry_waits_for_others_until_it_is_old_and_no_longer(rig: Rig) -> None:
    exporter = rig.partition()
    await _aged(rig, 3, seconds=40)
    await exporter.turn()
    assert await rig.exported() == []
    lag = metrics.REGISTRY.get_sample_value("fetchbox_export_lag_seconds", {"topic": "jobs.status"})
    assert lag is not None
    assert 40 <= lag < 60
    rig.config.exporter.max_age.CopyFrom(Duration(seconds=30))
    exporter = rig.partition()
    await exporter.turn()
    assert len(await rig.exported()) == 3
    await exporter.turn()
    assert metrics.REGISTRY.get_sample_value("fetchbox_export_lag_seconds", {"topic": "jobs.status"}) == 0


async def test_the_lag_is_that_of_what_is_there_whatever_was_trimmed(rig: Rig) -> None:
    """By ids: what Redis counts for a group is wrong after a trim."""
    await _aged(rig, 10, seconds=50)
    await _aged(rig, 10, seconds=20)
    await rig.say("XTRIM", STREAM, "MAXLEN", 5)
    exporter = rig.partition()
    await exporter.turn()
    lag = metrics.REGISTRY.get_sample_value("fetchbox_export_lag_seconds", {"topic": "jobs.status"})
    assert lag is not None
    assert 20 <= lag < 50


async def test_entries_of_the_future_wait_no_longer_than_others(rig: Rig) -> None:
    rig.config.exporter.max_age.CopyFrom(Duration(nanos=1_000_000))
    exporter = rig.partition()
    await _aged(rig, 1, seconds=-1000)
    await exporter.turn()
    async with asyncio.timeout(60):
        while not await rig.exported():
            await exporter.turn()


async def test_many_rows_do_not_wait(rig: Rig) -> None:
    rig.config.exporter.max_rows = 10
    exporter = rig.partition()
    await rig.add(9)
    await exporter.turn()
    assert await rig.exported() == []
    ids = await rig.add(3)
    await exporter.turn()
    assert len(await rig.exported()) == 12
    assert (await rig.exported())[-3:] == ids


async def test_many_bytes_do_not_wait_once_it_is_known_how_large_entries_are(rig: Rig) -> None:
    rig.config.exporter.max_bytes = 4096
    exporter = rig.partition()
    await rig.add(10)
    await exporter.finish(lambda *_: None)
    await rig.add(100)
    await exporter.turn()
    assert len(await rig.exported()) == 10
    await rig.add(200)
    await exporter.turn()
    assert len(await rig.exported()) == 310


async def test_retention_is_told_how_far_the_lake_has_come(rig: Rig) -> None:
    publisher, exporter = wired(rig.config, rig.resources)
    exported = Exported(rig.resources.redis, 60_000)
    await publisher.publish()
    assert await exported.positions([STREAM]) == {STREAM: None}
    await exporter.turn()
    await publisher.publish()
    streams = [STREAM, keys.stream(keys.TASKS, 7), keys.stream(keys.DLQ, 1), keys.FLOWS_ENDED]
    assert await exported.positions(streams) == dict.fromkeys(streams, "0-0")
    ids = await rig.add(5)
    await exporter.finish(lambda *_: None)
    assert (await exported.positions([STREAM]))[STREAM] == ids[-1]


async def test_who_hears_of_another_that_is_ahead_reads_nothing_twice(rig: Rig) -> None:
    ids = await rig.add(5)
    slow, quick = rig.partition(), rig.partition()
    await slow.turn()
    await quick.finish(lambda *_: None)
    races = metrics.EXPORT_RACES._value.get()
    await slow._publisher.publish()
    await slow.finish(lambda *_: None)
    assert metrics.EXPORT_RACES._value.get() == races
    assert await rig.exported() == ids


async def test_what_redis_says_of_an_epoch_that_the_lake_does_not_know_is_no_state(rig: Rig) -> None:
    await rig.say("HSET", keys.cursors(STREAM), "exporter", "9999999999999-0", "exporter:epoch", 7)
    ids = await rig.add(5)
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == ids
    assert await rig.markers() == []


async def test_a_key_that_is_no_stream_holds_up_no_other(rig: Rig) -> None:
    await rig.say("SET", keys.stream(keys.STATUS, 1), "mine")
    ids = await rig.add(2)
    exporter = rig.exporter()
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await exporter.finish(lambda *_: None)
    assert await rig.exported() == ids


async def test_ends_of_runs_that_are_no_index_hold_up_no_topic(rig: Rig) -> None:
    await rig.say("SET", keys.FLOWS_ENDED, "mine")
    ids = await rig.add(2)
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await rig.exporter().finish(lambda *_: None)
    assert await rig.exported() == ids


async def test_retention_follows_a_lake_that_is_another_one_than_before(rig: Rig) -> None:
    """Its epochs begin anew, and would count for less than the last one of the lake before for all time."""
    await rig.add(5)
    await rig.partition().finish(lambda *_: None)
    await rig.add(3)
    await rig.say("XTRIM", STREAM, "MAXLEN", 1)
    await rig.partition().finish(lambda *_: None)
    assert len(await rig.markers()) == 1
    rig.config.lake.prefix = "moved/"
    ids = await rig.add(5)
    exporter = rig.partition()
    for _ in range(2):
        await exporter.finish(lambda *_: None)
    exported = Exported(rig.resources.redis, 60_000)
    assert await exported.positions([STREAM]) == {STREAM: ids[-1]}
    late = rig.partition()
    ids += await rig.add(1)
    await exporter.finish(lambda *_: None)
    await late.finish(lambda *_: None)
    assert await exported.positions([STREAM]) == {STREAM: ids[-1]}


async def test_a_partition_that_never_comes_to_its_end_leaves_the_others_their_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.export.exporter._SLICE", 0.0)
    rig.config.exporter.max_rows = 10
    ids = await rig.add(35)
    exporter = rig.partition()
    for done in (10, 20, 30, 30):
        await exporter.turn()
        assert await rig.exported() == ids[:done]
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == ids


async def _exported(rig: Rig) -> list[str]:
    """None while there is no bucket."""
    with suppress(FetchboxError):
        return await rig.exported()
    return []


async def test_the_role_serves_from_an_empty_redis_and_an_object_store_without_its_bucket(rig: Rig) -> None:
    rig.config.lake.bucket = "fetchbox-lake"
    rig.config.exporter.max_age.CopyFrom(Duration(nanos=1_000_000))
    rig.config.exporter.poll_interval.CopyFrom(Duration(nanos=10_000_000))
    service = await build(rig.config, rig.resources)
    ids = await rig.add(5)
    await service.start()
    try:
        async with asyncio.timeout(60):
            while len(await _exported(rig)) < len(ids):  # noqa: ASYNC110 - it is elsewhere
                await asyncio.sleep(0.01)
    finally:
        await service.drain(1)
        await service.stop()
    assert await rig.exported() == ids
