"""Places at a host and bytes in flight: never more than allowed, none lost, in order."""

import asyncio
import random

import pytest

from worker_svc.fetch.limits import SMALL_BYTES, BodyHold, ByteBudget
from worker_svc.fetch.places import STILL_SECONDS, HostBusyError, HostSlots


async def test_no_more_than_so_many_at_a_host() -> None:
    slots, running, most = HostSlots(3), 0, 0

    async def visit() -> None:
        nonlocal running, most
        await slots.take("h", 60)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        slots.free("h")

    await asyncio.gather(*(visit() for _ in range(50)))
    assert most == 3
    assert slots._sites == {}


async def test_a_busy_host_is_told_after_a_while_and_others_are_not_concerned() -> None:
    slots = HostSlots(1)
    assert await slots.take("h", 1) is False
    with pytest.raises(HostBusyError):
        await slots.take("h", 0.01)
    assert await slots.take("other", 0.01) is False
    waiting = asyncio.create_task(slots.take("h", 60))
    await asyncio.sleep(0)
    slots.free("h")
    assert await waiting is True
    slots.free("h")
    slots.free("other")
    assert slots._sites == {}


async def test_a_host_that_takes_its_time_has_one_waiter_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a few slow hosts would have every slot, most of them waiting."""
    monkeypatch.setattr("worker_svc.fetch.places.STILL_SECONDS", 0.05)
    slots = HostSlots(2)
    for _ in range(2):
        await slots.take("slow", 1)
    waiting = [asyncio.create_task(slots.take("slow", 60)) for _ in range(30)]
    done, left = await asyncio.wait(waiting[1:], timeout=30)
    assert (len(done), len(left), waiting[0].done()) == (29, 0, False)
    pauses = []
    for task in waiting[1:]:
        with pytest.raises(HostBusyError) as busy:
            await task
        pauses.append(busy.value.retry_after)
    assert min(pauses) >= 60
    slots.free("slow")
    assert await waiting[0] is True
    for _ in range(2):
        slots.free("slow")
    assert slots._sites == {}


async def test_those_who_are_turned_away_come_back_the_later_the_more_there_are() -> None:
    slots = HostSlots(1)
    await slots.take("slow", 1)
    slots._sites["slow"]._moved -= 30
    waiting = asyncio.create_task(slots.take("slow", 60))
    await asyncio.sleep(0)
    pauses = []
    for _ in range(40):
        with pytest.raises(HostBusyError) as busy:
            await slots.take("slow", 5)
        pauses.append(busy.value.retry_after)
    assert 5 <= pauses[0] <= 31
    assert 150 <= pauses[-1] <= 300
    assert STILL_SECONDS < 5
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    slots.free("slow")
    assert slots._sites == {}


async def test_a_cancelled_waiter_leaves_nothing() -> None:
    slots = HostSlots(1)
    await slots.take("h", 1)
    waiting = asyncio.create_task(slots.take("h", 60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    slots.free("h")
    assert slots._sites == {}


async def test_bytes_in_flight_stay_within_the_budget_under_cancellation() -> None:
    budget, rng, held = ByteBudget(1000), random.Random(7), 0

    async def use(size: int) -> None:
        nonlocal held
        async with budget.reserved(size):
            held += min(size, 1000)
            assert held <= 1000
            try:
                await asyncio.sleep(0)
            finally:
                held -= min(size, 1000)

    for _ in range(50):
        tasks = [asyncio.create_task(use(rng.choice((1, 300, 700, 1000, 5000)))) for _ in range(20)]
        await asyncio.sleep(0)
        for task in rng.sample(tasks, 5):
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert budget.free == 1000


async def test_bodies_that_grow_do_not_wait_for_each_other_for_ever() -> None:
    """Twenty bodies free what they hold only at 300, and there is room for 1,000."""
    budget, deepest = ByteBudget(1000), 0

    async def grow() -> None:
        nonlocal deepest
        hold = budget.hold()
        for _ in range(5):
            for size in range(7, 301, 7):
                await hold.resize(size)
                deepest = min(deepest, budget.free)
                await asyncio.sleep(0)
            await hold.resize(0)
        hold.close()

    async def whole() -> None:
        for _ in range(5):
            async with budget.reserved(1000):
                await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(*(grow() for _ in range(20)), whole()), 60)
    assert budget.free == 1000
    assert deepest >= -300


async def test_what_holds_little_stops_nobody() -> None:
    budget = ByteBudget(1000)
    slow = [budget.hold() for _ in range(10)]
    for hold in slow:
        await hold.resize(50)
    other = budget.hold()
    await asyncio.wait_for(other.resize(500), 5)
    for hold in (*slow, other):
        hold.close()
    assert budget.free == 1000


async def test_large_bodies_leave_room_for_small_ones() -> None:
    """Large ones hold all that they may and stay; small ones come and go, however many wait behind them."""
    budget = ByteBudget(64 * SMALL_BYTES)
    large = [budget.hold() for _ in range(10)]

    async def grow(hold: BodyHold) -> None:
        for size in range(SMALL_BYTES, 8 * SMALL_BYTES, SMALL_BYTES // 2):
            await hold.resize(size)
        await asyncio.Event().wait()

    growing = [asyncio.create_task(grow(hold)) for hold in large]
    for _ in range(400):
        await asyncio.sleep(0)
    assert sum(hold.size for hold in large) < 10 * 7.5 * SMALL_BYTES, "some of them wait"

    async def small() -> None:
        hold = budget.hold()
        for size in range(0, SMALL_BYTES, SMALL_BYTES // 8):
            await hold.resize(size)
        hold.close()

    for _ in range(20):
        await asyncio.wait_for(asyncio.gather(*(small() for _ in range(4))), 5)
    for task in growing:
        task.cancel()
    await asyncio.gather(*growing, return_exceptions=True)
    for hold in large:
        hold.close()
    assert budget.free == 64 * SMALL_BYTES


async def test_holds_survive_cancellation() -> None:
    budget, rng = ByteBudget(1000), random.Random(7)

    async def use() -> None:
        hold = budget.hold()
        try:
            for _ in range(20):
                await hold.resize(rng.randrange(900))
                await asyncio.sleep(0)
        finally:
            hold.close()

    for _ in range(30):
        tasks = [asyncio.create_task(use()) for _ in range(10)]
        for _ in range(rng.randrange(1, 9)):
            await asyncio.sleep(0)
        for task in rng.sample(tasks, 5):
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert budget.free == 1000
