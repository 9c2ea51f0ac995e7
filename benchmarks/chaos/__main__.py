"""`python -m benchmarks.chaos [--seed N] [--manifests 20] [--resources 500] [--timeout 480]`."""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from benchmarks.chaos import command, origin, verify
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
    parser = command.options("benchmarks.chaos", __doc__)
    parser.add_argument("--manifests", type=int, default=20)
    parser.add_argument("--resources", type=int, default=500)
    parser.add_argument("--spread", type=float, default=15.0, help="seconds over which the submits are spread")
    return command.verdict(parser, _run, "all resources are as promised")


if __name__ == "__main__":
    sys.exit(main())
