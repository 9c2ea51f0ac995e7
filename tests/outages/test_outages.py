"""Whatever becomes of Redis while work goes through the platform, every loop heals and every accepted job ends once."""

import pytest

from tests.outages.conftest import World
from tests.outages.rig import off, torment


@pytest.mark.long
@pytest.mark.fault(8, 40, 44)
async def test_a_killed_server_comes_back(world: World) -> None:
    world.redis.crash()
    await world.platform.says("unhealthy")
    await world.platform.stale(1.0)
    await off(world.redis.restart)
    await world.heals_and_ends()


@pytest.mark.long
@pytest.mark.parametrize("command", ["CLIENT KILL TYPE normal SKIPME yes", "SCRIPT FLUSH"])
@pytest.mark.fault(8, 40)
async def test_something_is_lost_every_second(world: World, command: str) -> None:
    async with torment(lambda: world.redis.do(command), every=1.0) as told:
        while told.strikes < 3:
            await world.load.flows(1)
    await world.heals_and_ends()


@pytest.mark.long
@pytest.mark.fault(35)
async def test_all_data_is_lost_once(world: World) -> None:
    world.redis.do("FLUSHALL")
    world.load.forget()
    await world.heals_and_ends()


@pytest.mark.long
@pytest.mark.fault(47)
async def test_without_memory_all_that_was_accepted_is_done_and_nothing_else(world: World) -> None:
    world.redis.do("CONFIG SET maxmemory 1")
    await world.platform.says("unhealthy")
    await world.load.drains()
    world.redis.do("CONFIG SET maxmemory 0")
    await world.heals_and_ends()
