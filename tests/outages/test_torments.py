"""Whatever becomes of Redis while work goes through the platform, every loop heals and every accepted job ends once."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from fetchbox.config.v1.config_pb2 import Config
from operator_svc import bootstrap as operator
from tests.outages.load import Load
from tests.outages.platform import Platform, paced, platform
from tests.outages.rig import UnrulyRedis, off, torment

SECONDS = 2.0


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
