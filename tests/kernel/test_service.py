"""The life cycle: order of start and stop, failures at start, loops that survive everything."""

import asyncio
import os
import signal

import pytest

from kernel.service.service import Periodic, Service


class Recorder:
    def __init__(self, name: str, story: list[str], fails: bool = False) -> None:
        self.name = name
        self._story = story
        self._fails = fails

    async def start(self) -> None:
        self._story.append(f"start {self.name}")
        if self._fails:
            raise OSError("port taken")

    async def drain(self, grace: float) -> None:
        self._story.append(f"drain {self.name}")

    async def stop(self) -> None:
        self._story.append(f"stop {self.name}")


async def test_duties_start_in_order_and_stop_in_reverse_once() -> None:
    story: list[str] = []
    service = Service("s", [Recorder("a", story), Recorder("b", story)])
    await service.start()
    await service.drain(1)
    await service.stop()
    await service.stop()
    assert story == ["start a", "start b", "drain a", "drain b", "stop b", "stop a"]


async def test_a_duty_that_cannot_start_stops_those_before_it() -> None:
    story: list[str] = []
    service = Service("s", [Recorder("a", story), Recorder("b", story, fails=True), Recorder("c", story)])
    with pytest.raises(OSError, match="port taken"):
        await service.start()
    assert story == ["start a", "start b", "stop b", "stop a"]


class InstantClock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def test_a_periodic_duty_survives_its_failures_and_slows_down_meanwhile() -> None:
    clock, turns, done = InstantClock(), 0, asyncio.Event()

    async def work() -> None:
        nonlocal turns
        turns += 1
        if turns <= 3:
            raise ConnectionError("gone")
        done.set()

    duty = Periodic("d", 1.0, work, clock, jitter=0)
    await duty.start()
    await done.wait()
    await duty.stop()
    assert clock.slept[:3] == [1.0, 2.0, 4.0]
    assert duty.last_success is not None


async def test_a_signal_drains_and_a_second_one_ends_the_drain() -> None:
    story: list[str] = []
    started, draining = asyncio.Event(), asyncio.Event()

    class Slow(Recorder):
        async def start(self) -> None:
            await super().start()
            started.set()

        async def drain(self, grace: float) -> None:
            story.append("draining")
            draining.set()
            await asyncio.Event().wait()

    service = Service("s", [Slow("a", story)])
    running = asyncio.create_task(service.run_until_signal())
    await started.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await draining.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 5)
    assert story == ["start a", "draining", "stop a"]
