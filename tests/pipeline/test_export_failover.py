"""Another Redis than before: what a failover lost and what came since is in the lake, and told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.log.offsets import parse_id
from kernel.service.resources import Resources
from tests.outages.rig import UnrulyRedis, off, until
from tests.pipeline.export_rig import STREAM, Rig, drained


@pytest.fixture
async def unruly(tmp_path: Path) -> AsyncIterator[UnrulyRedis]:
    made = UnrulyRedis(tmp_path)
    made.start()
    made.do("CONFIG SET repl-diskless-sync-delay 0")
    yield made
    made.stop()


@pytest.fixture
async def rig(config: Config, unruly: UnrulyRedis) -> AsyncIterator[Rig]:
    config.redis.addr = unruly.addr
    resources = await Resources.open(config)
    yield Rig(config, resources)
    await resources.close()


async def _promoted(unruly: UnrulyRedis, rig: Rig, lost: int) -> list[str]:
    """A replica takes over that has missed the last entries, all of which were exported; those that it missed."""
    other = await unruly.replica()
    await off(lambda: other.inline("REPLICAOF NO ONE"))
    await until(lambda: unruly.fact("role", server=other) == "master", "it is no master")
    gone = await rig.add(lost, first=1000)
    await drained(rig.chain())
    await off(unruly.crash)
    unruly.server = other
    unruly.proxy.lead_to(other.port)
    await _reconnected(rig)
    return gone


async def _reconnected(rig: Rig) -> None:
    """Producers are on the new server: a write on a connection to the old one is not repeated."""
    await rig.resources.redis.commands.connection_pool.disconnect()


@pytest.mark.parametrize("new", [1, 3, 8], ids=["fewer", "as many", "more"])
async def test_entries_that_come_after_a_failover_are_exported_though_others_were_lost(
    unruly: UnrulyRedis, rig: Rig, new: int
) -> None:
    ids = await rig.add(10)
    running = await drained(rig.chain())
    ids += await _promoted(unruly, rig, 3)
    ids += await rig.add(new, first=2000)
    await drained(running)
    assert sorted(set(await rig.exported()), key=parse_id) == ids
    assert [(one.reason, one.epoch) for one in await rig.markers()] == [("rewritten", 2)]
    ids += await rig.add(2, first=3000)
    await drained(rig.chain())
    assert sorted(set(await rig.exported()), key=parse_id) == ids
    assert len(await rig.markers()) == 1


async def test_a_new_master_whose_clock_is_behind_gives_as_many_ids_before_the_end_of_the_lake(
    unruly: UnrulyRedis, rig: Rig
) -> None:
    ids = await rig.add(10)
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    gone = await _promoted(unruly, rig, 2)
    ms, seq = parse_id(ids[-1])
    late = [f"{ms}-{seq + 1}", gone[-1]]
    await rig.add_at(late)
    await exporter.turn()
    await exporter.finish(lambda *_: None)
    assert sorted(set(await rig.exported()), key=parse_id) == sorted({*ids, *gone, *late}, key=parse_id)
    assert [(one.reason, one.after) for one in await rig.markers()] == [("rewritten", gone[-1])]


async def test_a_failover_that_lost_nothing_is_no_news(unruly: UnrulyRedis, rig: Rig) -> None:
    ids = await rig.add(10)
    await rig.say("XADD", STREAM, "*", "payload", b"\xff")
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    other = await unruly.replica()
    await unruly.hand_over(other)
    await until(lambda: b"PONG" in unruly.say("PING"), "the new master does not answer")
    await _reconnected(rig)
    ids += await rig.add(4, first=4000)
    await exporter.turn()
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == ids
    assert await rig.markers() == []


async def test_a_restart_of_redis_is_no_news_either(unruly: UnrulyRedis, rig: Rig) -> None:
    ids = await rig.add(10)
    exporter = rig.partition()
    await exporter.finish(lambda *_: None)
    server = unruly.fact("master_replid")
    await off(unruly.crash)
    await off(unruly.restart)
    assert unruly.fact("master_replid") != server
    await _reconnected(rig)
    ids += await rig.add(4, first=4000)
    await exporter.turn()
    await exporter.finish(lambda *_: None)
    assert await rig.exported() == ids
    assert (await drained(rig.chain())).written == 0
    assert await rig.markers() == []
