"""A worker of file jobs that is asked to end finishes what it can and gives the rest back, at no cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cli.embedded.seaweed import SeaweedFS
from fetchbox.config.v1.config_pb2 import Config
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.worker.conftest import Start, WorkerProcess, duty, eventually, quick
from tests.worker.test_file_jobs import COMPLETED, DEAD, LOW, Lists


class SlowStore(FlakyS3):
    """A store that answers the PUT of files named `slow` only once it is released."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.asked = asyncio.Event()
        self.released = asyncio.Event()

    async def _answer(self, method: str, target: str, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if method == "PUT" and "slow" in target:
            self.asked.set()
            await self.released.wait()
        await super()._answer(method, target, head, body, writer)

    async def reached(self) -> bool:
        return self.asked.is_set()


@pytest.fixture
async def store(config: Config, s3: SeaweedFS) -> AsyncIterator[SlowStore]:
    """The store of the configuration, behind one that takes its time."""
    async with SlowStore(s3.endpoint) as proxy:
        config.object_store.endpoint = proxy.endpoint
        yield proxy


@pytest.fixture
def root(config: Config, store: SlowStore, tmp_path: Path) -> Path:
    """The root of the files of a configuration whose paces suit a test."""
    quick(config)
    made = tmp_path / "incoming"
    made.mkdir()
    config.worker.file_roots.append(str(made))
    for name in ("quick.txt", "slow.txt"):
        (made / name).write_bytes(name.encode())
    return made


@pytest.fixture
def lists(root: Path, resources: Resources) -> Lists:
    """The lists; the connections know the slow store."""
    assert root
    return Lists(resources)


async def _processing(resources: Resources) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    redis: Any = resources.redis.commands
    async for key in redis.scan_iter(match="jobqueue:worker:*:processing*"):
        found[key.decode()] = await redis.lrange(key, 0, -1)
    return found


@pytest.mark.parametrize("signals", [1, 2], ids=["grace", "at-once"])
async def test_sigterm_gives_back_what_does_not_end_and_costs_it_no_attempt(
    config: Config,
    root: Path,
    lists: Lists,
    resources: Resources,
    start_process: Callable[[Config], WorkerProcess],
    store: SlowStore,
    signals: int,
) -> None:
    """After the grace, or at once with a second signal."""
    config.worker.drain_grace.FromSeconds(1 if signals == 1 else 600)
    done = await lists.push(root / "quick.txt")
    stuck = await lists.push(root / "slow.txt", priority="high", trace_id="kept as it is")
    process = start_process(config)
    await eventually(store.reached, 60, process.tail)
    await lists.until(COMPLETED, 1)
    if signals == 2:
        process.process.terminate()
        await eventually(lambda: asyncio.sleep(0, "service_draining" in process.tail()), 60, process.tail)
    assert await asyncio.to_thread(process.terminate) == 0, process.tail()
    assert await lists.of(LOW) == [stuck], "byte for byte"
    assert await lists.of(COMPLETED) == [done]
    assert await lists.of(DEAD) == []
    assert await _processing(resources) == {}
    redis: Any = resources.redis.commands
    assert await redis.keys("jobqueue:processing:worker:*") == []
    assert await redis.zcard(keys.FILE_WORKERS) == 0


async def test_a_drain_lets_a_running_job_end_and_takes_no_other(
    config: Config, root: Path, lists: Lists, start_worker: Start, store: SlowStore
) -> None:
    running = await lists.push(root / "slow.txt")
    service = await start_worker(config)
    await eventually(store.reached, 60)
    runner = duty(service, "runner")
    draining = asyncio.create_task(service.drain(60))
    await eventually(lambda: asyncio.sleep(0, runner.state == "draining"), 60)
    later = await lists.push(root / "quick.txt")
    store.released.set()
    await draining
    assert await lists.of(COMPLETED) == [running]
    await service.stop()
    assert await lists.of(LOW) == [later]


async def test_pause_and_resume_are_for_files_too(
    config: Config, root: Path, lists: Lists, start_worker: Start
) -> None:
    service = await start_worker(config)
    runner = duty(service, "runner")
    runner.pause()
    moves = runner._lane.lists._movers._moves
    await eventually(lambda: asyncio.sleep(0, not moves and not runner._lane.lists._movers.waited_for), 60)
    job = await lists.push(root / "quick.txt")
    await asyncio.sleep(0.3)  # in which a worker that is not paused would take it
    assert await lists.of(LOW) == [job], "nobody takes it"
    runner.resume()
    assert await lists.until(COMPLETED, 1) == [job]


async def test_looks_for_canceled_jobs_leave_files_alone(
    config: Config, root: Path, lists: Lists, start_worker: Start, store: SlowStore
) -> None:
    """A file job has no record, and so none that is missing."""
    job = await lists.push(root / "slow.txt")
    service = await start_worker(config)
    await eventually(store.reached, 60)
    (slot,) = duty(service, "runner").running
    for _ in range(3):
        await duty(service, "cancel")._work()
    assert not slot.interrupted
    store.released.set()
    assert await lists.until(COMPLETED, 1) == [job]


async def test_a_lapsed_lease_stops_the_work_and_another_finishes_it(
    config: Config, root: Path, lists: Lists, resources: Resources, start_worker: Start, store: SlowStore
) -> None:
    """The worker fences itself: whoever has the job by now does it."""
    job = await lists.push(root / "slow.txt")
    service = await start_worker(config)
    await eventually(store.reached, 60)
    runner = duty(service, "runner")
    (slot,) = runner.running
    redis: Any = resources.redis.commands
    await redis.delete(f"jobqueue:processing:worker:{runner._lane.worker_id}")
    await eventually(lambda: asyncio.sleep(0, slot.interrupted), 60)
    store.released.set()
    assert await lists.until(COMPLETED, 1) == [job], "with no attempt used up"
    assert await lists.of(DEAD) == []
