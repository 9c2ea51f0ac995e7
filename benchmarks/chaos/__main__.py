"""`python -m benchmarks.chaos [--seed N] [--manifests 20] [--resources 500] [--timeout 480]`."""

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.chaos import origin, verify
from benchmarks.chaos.client import Client, Progress
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.killer import Killer
from fetchbox.operator.v1.job_pb2 import Job


async def _work(cluster: Cluster, arguments: argparse.Namespace, progress: Progress) -> dict[int, Job]:
    runner, base = await origin.start()
    client = Client(cluster.config.ingest.listen, cluster.config.operator.listen, progress)

    async def one(number: int) -> Job:
        await asyncio.sleep(number * arguments.spread / arguments.manifests)
        return await client.wait(await client.submit(number, base, arguments.resources))

    try:
        async with asyncio.timeout(arguments.timeout):
            jobs = await asyncio.gather(*(one(number) for number in range(arguments.manifests)))
        return dict(enumerate(jobs))
    finally:
        await client.close()
        await runner.cleanup()


def _run(arguments: argparse.Namespace, data: Path) -> list[str]:
    cluster, progress = Cluster(data), Progress()
    killer = Killer(cluster.victims, arguments.seed, arguments.pause, progress)
    try:
        cluster.start()
        killer.start()
        started = time.monotonic()
        try:
            jobs = asyncio.run(_work(cluster, arguments, progress))
        finally:
            print(f"{time.monotonic() - started:.1f} s, killed {dict(killer.killed)}, {progress}")
        killer.rest()
        return asyncio.run(verify.problems(cluster.config, jobs, arguments.resources))
    except TimeoutError:
        return [f"not done within {arguments.timeout:g} s: {progress}"]
    finally:
        killer.close()
        cluster.stop()


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--manifests", type=int, default=20)
    parser.add_argument("--resources", type=int, default=500)
    parser.add_argument("--spread", type=float, default=15.0, help="seconds over which the submits are spread")
    parser.add_argument("--pause", type=float, default=12.0, help="the longest time between two kills of one process")
    parser.add_argument("--timeout", type=float, default=480.0, help="seconds until it counts as hung")
    parser.add_argument("--keep", type=Path, help="a directory for data and logs, kept afterwards")
    arguments = parser.parse_args()
    arguments.seed = arguments.seed or secrets.randbelow(10**6) + 1
    print(f"chaos: seed {arguments.seed}, {arguments.manifests} manifests of {arguments.resources} resources")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        found = _run(arguments, arguments.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="fetchbox-chaos-") as data:
            found = _run(arguments, Path(data))
    for line in found[:50]:
        print(line)
    resources = arguments.manifests * arguments.resources
    print(f"{len(found)} broken promises" if found else f"all {resources} resources are as promised")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
