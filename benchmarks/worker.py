"""What a worker costs: CPU a no-op task in its slots, with handler, log line, result line and lane; no finalization.

    python -m benchmarks.worker [--tasks 20000] [--slots 128] [--jobs 1,10,1000]

As `benchmarks.lane`, but through `Runner` and `TaskRunner`: the difference of the two is what the slots cost. Ended
jobs are counted in the ledger; a run that does not complete in time is a failure, not a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import tempfile
import time
from pathlib import Path

import uvloop

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask
from flows.publishing.bus import internal_bus
from flows.publishing.manager import EventManager
from kernel import ids
from kernel.breakers import Breakers
from kernel.breakers.hostgate import MemoryHostGates
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.handlers import HandlerRegistry, JobHandler, StoredObject, TaskContext
from kernel.ledger import JobRecord, Ledger
from kernel.objects import ObjectStore
from kernel.queue.files.lane import ListLane
from kernel.queue.lanes import Lanes
from kernel.queue.streams.worker import WorkerLane
from kernel.redis.clients import RedisClients
from worker_svc.deadlines import Deadlines
from worker_svc.endings import JobEndings
from worker_svc.fetch import Fetcher
from worker_svc.fetching import TaskRunner
from worker_svc.files import FileRunner
from worker_svc.retries import Retries
from worker_svc.runner import Runner, RunnerLimits
from worker_svc.steps import StepHandlers, StepLogs
from worker_svc.task_runner import QueuedRunner
from worker_svc.tasks import TaskHandlers
from worker_svc.ways import Ways
from worker_svc.work import Work

_BLOCK_SECONDS = 0.5
_URL = "https://cdn.example.com/gallery/2024/05/01/image-%06d.jpg?size=large"


class Noop(JobHandler):
    """Stores nothing."""

    async def run(self, task: DownloadTask, context: TaskContext) -> StoredObject:  # noqa: ARG002 - needs nothing
        """The result of a download that cost nothing."""
        key = f"s3://fetchbox/resources/default/{task.job_id}/{task.resource_id}"
        return StoredObject(key, 123_456, "ab" * 32, "image/jpeg", task.url, 200)


async def _publish(ledger: Ledger, tasks: int, size: int) -> int:
    """How many jobs of `size` tasks there are now."""
    jobs = [ids.uuid7() for _ in range(max(1, tasks // size))]
    for job_id in jobs:
        await ledger.accept(JobRecord(job_id=job_id, job_type="default", resource_total=size))
        await ledger.enter_outbox(job_id)
        await ledger.publish(job_id, [_task(job_id, index, size) for index in range(1, size + 1)])
    return len(jobs)


def _task(job_id: str, index: int, size: int) -> bytes:
    task = DownloadTask(job_id=job_id, job_type="default", resource_id=f"image-{index:06d}", url=_URL % index)
    task.resources_total, task.resource_index = size, index
    task.headers.add(name="user-agent", value="FetchBox/1.0")
    return task.SerializeToString()


def _runner(config: Config, clients: RedisClients, slots: int) -> Runner:
    clock, retries = SystemClock(), Retries(config)
    objects = ObjectStore(config.object_store)
    fetcher = Fetcher(config, objects, MemoryHostGates(clock), clock)
    tasks = TaskRunner(config, HandlerRegistry(config), fetcher, objects, clock, JobEndings(clock, retries))
    lane = WorkerLane(clients, config, "bench", clock, random.Random(1), lambda _: False, retries)
    breakers = Breakers(clients, config.circuit_breaker, clock)
    steps, logs = StepHandlers(config), StepLogs(EventManager(internal_bus()))
    queued = QueuedRunner(
        config, Ways(TaskHandlers(config, {}), steps, lambda _task, _tenant: ""), lane, clock, breakers, logs
    )
    work = Work(tasks, queued, FileRunner(config, objects))
    return Runner(
        Lanes(lane, ListLane(clients, config, "bench", clock), clock, _BLOCK_SECONDS),
        work,
        RunnerLimits(slots, _BLOCK_SECONDS),
        clock,
        deadline=Deadlines(config, steps),
        late=work.late,
        final_due=lambda: None,
        drained=asyncio.Event(),
    )


async def _measure(config: Config, size: int, arguments: argparse.Namespace) -> str:
    clients = await RedisClients.open(config.redis)
    await clients.commands.execute_command("FLUSHALL")
    ledger = Ledger(clients, config)
    jobs = await _publish(ledger, arguments.tasks, size)
    tasks = jobs * size
    runner = _runner(config, clients, arguments.slots)
    cpu, wall = time.process_time(), time.perf_counter()
    await runner.start()
    async with asyncio.timeout(arguments.patience):
        while runner.counts.completed < tasks:  # noqa: ASYNC110 - an event in the runner would be measured too
            await asyncio.sleep(0.02)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    _, ended = await ledger.counts()
    await runner.stop()
    await clients.close()
    if ended != jobs:
        raise SystemExit(f"only {ended} of {jobs} jobs ended")
    return f"{size:>6} {tasks:>8} {1e6 * cpu / tasks:>10.1f} {tasks / wall:>10.0f}"


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--jobs", default="1,10,1000", help="tasks a job, one run each")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which a run has failed")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}")
    print(f"{'a job':>6} {'tasks':>8} {'CPU us':>10} {'tasks/s':>10}")
    with tempfile.TemporaryDirectory() as folder:
        server = Valkey(Path(folder))
        server.start()
        try:
            config = defaults()
            config.redis.addr = server.addr
            config.job_types["default"].handler = "benchmarks.worker:Noop"
            for size in (int(text) for text in arguments.jobs.split(",")):
                print(uvloop.run(_measure(config, size, arguments)), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
