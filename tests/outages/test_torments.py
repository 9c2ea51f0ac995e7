"""Whatever becomes of Redis while work goes through the platform, every loop heals and every accepted job ends once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from fetchbox.config.v1.config_pb2 import Config
from operator_svc import bootstrap as operator
from tests.outages.load import Load
from tests.outages.platform import Platform, paced, platform
from tests.outages.rig import UnrulyRedis, off, torment


@dataclass
class World:
    redis: UnrulyRedis
    platform: Platform
    load: Load


@pytest.fixture
async def world(loopback: Config, unruly: UnrulyRedis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(operator, "_EXPIRE_SECONDS", 0.5)
    async with platform(paced(loopback), unruly) as made:
        load = Load(made, unruly)
        load.start()
        try:
            await load.flows(2)
            yield World(unruly, made, load)
        finally:
            await load.stop()


async def _heals_and_ends(world: World) -> None:
    await world.load.flows()
    await world.platform.healed()
    await world.load.ends()


@pytest.mark.fault(8, 40, 44)
async def test_a_killed_server_comes_back(world: World) -> None:
    world.redis.crash()
    await world.platform.says("unhealthy")
    await world.platform.stale(1.0)
    await off(world.redis.restart)
    await _heals_and_ends(world)


@pytest.mark.parametrize("command", ["CLIENT KILL TYPE normal SKIPME yes", "SCRIPT FLUSH"])
@pytest.mark.fault(8, 40)
async def test_something_is_lost_every_second(world: World, command: str) -> None:
    async with torment(lambda: world.redis.do(command), every=1.0) as told:
        while told.strikes < 4:
            await world.load.flows(1)
    await _heals_and_ends(world)


@pytest.mark.fault(35)
async def test_all_data_is_lost_once(world: World) -> None:
    world.redis.do("FLUSHALL")
    world.load.forget()
    await _heals_and_ends(world)


@pytest.mark.fault(20, 43)
async def test_a_demoted_master_is_left_for_its_caught_up_replica(world: World) -> None:
    replica = await world.redis.replica()
    await world.load.flows(1)
    old = await world.redis.hand_over(replica)
    await _heals_and_ends(world)
    assert world.redis.fact("role", server=old) == "slave"


@pytest.mark.fault(40, 41, 43)
async def test_a_master_that_vanishes_without_a_word_is_left_for_its_caught_up_replica(world: World) -> None:
    replica = await world.redis.replica()
    await world.load.flows(1)
    await world.redis.vanish(replica)
    await _heals_and_ends(world)


@pytest.mark.fault(18)
async def test_writes_hang_until_leases_are_over(world: World) -> None:
    world.redis.do("CLIENT PAUSE 600000 WRITE")
    await world.platform.stale(3.5)
    await world.platform.says("unhealthy")
    world.redis.do("CLIENT UNPAUSE")
    await _heals_and_ends(world)


@pytest.mark.fault(47)
async def test_without_memory_all_that_was_accepted_is_done_and_nothing_else(world: World) -> None:
    world.redis.do("CONFIG SET maxmemory 1")
    await world.platform.says("unhealthy")
    await world.load.drains()
    world.redis.do("CONFIG SET maxmemory 0")
    await _heals_and_ends(world)
