"""Soak: manifests for as long as you like, while memory, files and connections of every process are watched.

    python -m benchmarks.soak [--minutes 5] [--resources 200] [--at-once 4]

Exits with 1 when a job did not end as it must, with 3 when a process grows: more than a quarter in memory, or more than
16 open files, between the first and the last third of the run.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.bars import MISSED
from benchmarks.chaos import origin, verify
from benchmarks.chaos.client import Client, Progress
from benchmarks.chaos.cluster import Cluster
from fetchbox.operator.v1.job_pb2 import Job

_SAMPLE_SECONDS = 2.0
_GROWTH = 1.25
_FILES = 16


class Sample(NamedTuple):
    """One process at one time."""

    rss: int
    files: int


def _sample(pid: int) -> Sample:
    process = Path("/proc", str(pid))
    rss = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
    return Sample(int(rss.split()[1]) * 1024, sum(1 for _ in (process / "fd").iterdir()))


class Watch:
    """Samples every process until cancelled."""

    def __init__(self, cluster: Cluster) -> None:
        self._pids = {name: role.pid for name, role in cluster.roles.items()}
        self._samples: dict[str, list[Sample]] = {name: [] for name in self._pids}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            for name, pid in self._pids.items():
                self._samples[name].append(_sample(pid))
            await asyncio.sleep(_SAMPLE_SECONDS)

    def problems(self) -> list[str]:
        """Prints each process, and tells which ones grow."""
        found = []
        for name, samples in self._samples.items():
            third = max(1, len(samples) // 3)
            first, last = _middle(samples[third // 2 : third + third // 2]), _middle(samples[-third:])
            print(
                f"{name:<10} {first.rss >> 20:>4} -> {last.rss >> 20:>4} MiB, {first.files:>3} -> {last.files:>3} files"
            )
            if last.rss > first.rss * _GROWTH or last.files > first.files + _FILES:
                found.append(f"{name} grows: {first} -> {last}")
        return found


def _middle(samples: list[Sample]) -> Sample:
    return Sample(int(median(s.rss for s in samples)), int(median(s.files for s in samples)))


async def _feed(cluster: Cluster, arguments: argparse.Namespace, base: str) -> dict[int, Job]:
    progress, numbers, jobs = Progress(), count(), dict[int, Job]()
    client = Client(cluster.config.ingest.listen, cluster.config.operator.listen, progress)
    until = time.monotonic() + arguments.minutes * 60

    async def lane() -> None:
        while time.monotonic() < until:
            number = next(numbers)
            job_id = await client.submit(number, base, arguments.resources)
            async with asyncio.timeout(120):
                jobs[number] = await client.wait(job_id)

    try:
        await asyncio.gather(*(lane() for _ in range(arguments.at_once)))
    finally:
        await client.close()
    return jobs


async def _soak(cluster: Cluster, arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What grew, and what is wrong with the jobs."""
    runner, base = await origin.start()
    watch = Watch(cluster)
    watching = asyncio.create_task(watch.run())
    try:
        jobs = await _feed(cluster, arguments, base)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await runner.cleanup()
    print(f"{len(jobs)} jobs, {len(jobs) * arguments.resources / arguments.minutes / 60:.0f} resources a second")
    return watch.problems(), await verify.problems(cluster.config, jobs, arguments.resources)


def main() -> int:
    """0 when nothing grew and every job is right, 3 when something grew, 1 when a job is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--resources", type=int, default=200, help="in one manifest")
    parser.add_argument("--at-once", type=int, default=4, help="jobs at the same time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fetchbox-soak-") as data:
        cluster = Cluster(Path(data))
        try:
            cluster.start()
            grown, wrong = asyncio.run(_soak(cluster, arguments))
        finally:
            cluster.stop()
    found = [*grown, *wrong]
    for line in found[:50]:
        print(line)
    print(f"{len(found)} problems" if found else "nothing grew, and every job is right")
    return 1 if wrong else MISSED if grown else 0


if __name__ == "__main__":
    sys.exit(main())
