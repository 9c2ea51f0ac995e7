"""A switch to a caught-up replica costs time and nothing else, and so do leases that end while writes hang."""

import pytest

from tests.outages.conftest import World


@pytest.mark.long
@pytest.mark.fault(20, 43)
async def test_a_demoted_master_is_left_for_its_caught_up_replica(world: World) -> None:
    replica = await world.redis.replica()
    await world.load.flows(1)
    old = await world.redis.hand_over(replica)
    await world.heals_and_ends()
    assert world.redis.fact("role", server=old) == "slave"


@pytest.mark.long
@pytest.mark.fault(40, 41, 43)
async def test_a_master_that_vanishes_without_a_word_is_left_for_its_caught_up_replica(world: World) -> None:
    replica = await world.redis.replica()
    await world.load.flows(1)
    await world.redis.vanish(replica)
    await world.heals_and_ends()


@pytest.mark.long
@pytest.mark.fault(18)
async def test_writes_hang_until_leases_are_over(world: World) -> None:
    world.redis.do("CLIENT PAUSE 600000 WRITE")
    await world.platform.stale(3.5)
    await world.platform.says("unhealthy")
    world.redis.do("CLIENT UNPAUSE")
    await world.heals_and_ends()
