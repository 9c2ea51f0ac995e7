"""A priority list whose breaker is open is not read; one job in the fleet is its probe, and no attempt is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from breaker_rig import becomes, breakers_on, open_up, stands, until
from list_rig import NEVER, PASSING, ListRig, rig, settings

from kernel.breakers import Breakers
from kernel.queue.files.lane import ListLane
from kernel.queue.work.types import Claim, Failure, Success


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[ListRig]:
    async with rig(settings(redis_server)) as made:
        yield made


@pytest.fixture
async def quick(redis_server: str) -> AsyncIterator[Breakers]:
    async with breakers_on(redis_server, cooldown=0.3) as made:
        yield made


@pytest.fixture
async def slow(redis_server: str) -> AsyncIterator[Breakers]:
    async with breakers_on(redis_server, cooldown=600.0) as made:
        yield made


@pytest.mark.fault(69)
@pytest.mark.req("R002-breaker.03")
async def test_jobs_wait_on_an_open_queue_and_the_other_goes_on(box: ListRig, slow: Breakers) -> None:
    lane = await box.lane("w1", slow)
    await box.fill(box.low, 4)
    claims = await box.claim(lane, 4)
    assert set(await box.settle(lane, claims, PASSING)) == {"retrying"}
    name = f"queue:{box.low}"
    await becomes(slow, name, "open")
    await until(lambda: _shut(slow, name))
    waiting = await box.fill(box.low, 3)
    high = await box.fill(box.high, 2)
    assert sorted(claim.payload for claim in await box.claim(lane, 2)) == sorted(high)
    await box.nothing(lane)
    assert set(waiting) <= set(await box.list(box.low))


async def _shut(breakers: Breakers, name: str) -> bool:
    return not (await breakers.admit(name)).allowed


@pytest.mark.fault(69)
@pytest.mark.req("R002-breaker.04", "R002-breaker.05")
async def test_one_job_is_the_probe_and_its_success_lets_the_others_flow(box: ListRig, quick: Breakers) -> None:
    name = f"queue:{box.low}"
    await open_up(quick, name)
    jobs = await box.fill(box.low, 10)
    lane = await box.lane("w1", quick)
    (probe,) = await _claimed(lane)
    await box.nothing(lane, 1.0)
    assert await stands(quick, name) == "half_open"
    assert await box.settle(lane, [probe], Success()) == ["completed"]
    others = await box.claim(lane, 9)
    assert sorted(claim.payload for claim in [probe, *others]) == sorted(jobs)
    assert {claim.attempt for claim in others} == {0}


async def _claimed(lane: ListLane) -> list[Claim]:
    found: list[Claim] = []

    async def met() -> bool:
        found.extend(await lane.claim(16, 0.2))
        return bool(found)

    await until(met)
    return found


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(PASSING, "open"), (NEVER, "closed"), (Failure("SYSTEM_CANCELED", "stopped"), "half_open")],
    ids=["a fault of what it needs", "a fault of its own", "no result"],
)
@pytest.mark.req("R002-breaker.05", "R002-breaker.06")
async def test_what_the_probe_comes_to(box: ListRig, quick: Breakers, outcome: Failure, state: str) -> None:
    name = f"queue:{box.low}"
    await open_up(quick, name)
    await box.fill(box.low, 1)
    lane = await box.lane("w1", quick)
    (probe,) = await _claimed(lane)
    await box.settle(lane, [probe], outcome)
    await becomes(quick, name, state)


async def test_a_probe_that_is_given_back_or_lost_frees_its_place(box: ListRig, quick: Breakers) -> None:
    name = f"queue:{box.low}"
    await open_up(quick, name)
    (job,) = await box.fill(box.low, 1)
    lane = await box.lane("w1", quick)
    (probe,) = await _claimed(lane)
    await lane.give_back([probe])
    (again,) = await _claimed(lane)
    assert (again.payload, again.attempt) == (job, 0)
    lane._lease_changed(False)  # its lease has lapsed while the job was the probe
    other = await box.lane("w2", quick)
    (second,) = await box.fill(box.low, 1)
    found = await _claimed(other)
    assert second in [claim.payload for claim in found] or job in [claim.payload for claim in found]
    await box.settle(other, found, Success())
    await becomes(quick, name, "closed")
