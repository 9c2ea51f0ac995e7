"""`python -m benchmarks.chaos [--seed N] [--manifests 20] [--resources 500] [--timeout 480]`."""

import argparse
import asyncio
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from benchmarks.chaos import origin, verify
from benchmarks.chaos.client import Client, Progress
from benchmarks.chaos.cluster import Cluster
from fetchbox.operator.v1.job_pb2 import Job


class Killer:
    """Kills one thing after another, each kind at least once, and starts it again after up to a second."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.killed: Counter[str] = Counter()
        self._victims = cluster.victims
        self._random = random
        self._queue = sorted(self._victims)
        random.shuffle(self._queue)

    def run(self, progress: Progress, manifests: int, over: threading.Event) -> None:
        """Goes on until the work is done, or an error has ended it."""
        while not over.wait(self._random.uniform(0.3, 2.0)) and progress.ended < manifests:
            name = self._queue.pop() if self._queue else self._random.choice(sorted(self._victims))
            print(f"{time.strftime('%X')} kill -9 {name:<10} {progress}", flush=True)
            self._victims[name].kill9()
            time.sleep(self._random.uniform(0.0, 1.0))
            self._victims[name].restart()
            self.killed[name] += 1


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
    cluster, progress, over = Cluster(data), Progress(), threading.Event()
    killer = Killer(cluster, Random(arguments.seed))
    outcome: list[dict[int, Job] | BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(_work(cluster, arguments, progress)))
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            outcome.append(error)
        over.set()

    try:
        cluster.start()
        started = time.monotonic()
        thread = threading.Thread(target=work)
        thread.start()
        killer.run(progress, arguments.manifests, over)
        thread.join()
        result = outcome[0]
        print(f"{time.monotonic() - started:.1f} s, killed {dict(killer.killed)}, {progress}")
        if isinstance(result, BaseException):
            return [f"{type(result).__name__}: {result} ({progress})"]
        return asyncio.run(verify.problems(cluster.config, result, arguments.resources))
    finally:
        cluster.stop()


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--manifests", type=int, default=20)
    parser.add_argument("--resources", type=int, default=500)
    parser.add_argument("--spread", type=float, default=15.0, help="seconds over which the submits are spread")
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
