"""`python -m benchmarks.chaos.files [--seed N] [--files 5000]`: files in a directory, while everything is killed.

Two producers look at one directory that fills up; two workers store what is queued; a reaper stands by. All of them,
Redis and the object store are killed at random. In the end every file is in the store, whole, was put onto a queue
once, and lies on the list of completed jobs once; nothing lies anywhere else.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from benchmarks.chaos import command
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.killer import Killer
from kernel.errors import FetchboxError
from kernel.queue.files.names import ListNames
from kernel.queue.work import file_job as job
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.service.resources import Resources

_QUIET = {"producer-a": "producer", "producer-b": "producer", "reaper": "reaper"}
_LOOK_SECONDS = 0.5


@dataclass
class Progress:
    """What the killer and the terminal look at."""

    written: int = 0
    completed: int = 0


class _Writer(threading.Thread):
    """Fills the directory over time, some files high, each written under another name first."""

    def __init__(self, folder: Path, count: int, seconds: float, seed: int, progress: Progress) -> None:
        super().__init__(name="writer", daemon=True)
        self.digests: dict[str, str] = {}
        self._folder = folder
        self._count = count
        self._pause = seconds / count
        self._random = Random(f"{seed}/writer")
        self._progress = progress

    def run(self) -> None:
        for number in range(self._count):
            name = f"{number % 50}/{number}{'.csv' if number % 5 == 0 else '.txt'}"
            body = self._random.randbytes(self._random.randrange(0, 20_000))
            path = self._folder / name
            path.parent.mkdir(exist_ok=True)
            unfinished = path.with_suffix(".tmp")
            unfinished.write_bytes(body)
            unfinished.rename(path)
            self.digests[name] = sha256(body).hexdigest()
            self._progress.written += 1
            time.sleep(self._pause)


def _more(folder: Path) -> str:
    return f"""
[worker.completed_keep]
max_count = 1000000

[producer]
scan_dir = "{folder}"
scan_interval = "3s"
settle = "500ms"
high_priority_exts = [".csv"]
rate_limit_per_sec = 0

[reaper]
interval = "1s"
"""


async def _work(cluster: Cluster, arguments: argparse.Namespace, progress: Progress) -> None:
    """Returns when as many jobs are completed as there are files."""
    names = ListNames(cluster.config.worker)
    clients = RedisClients(cluster.config.redis)
    try:
        async with asyncio.timeout(arguments.timeout):
            while progress.completed < arguments.files:
                await asyncio.sleep(_LOOK_SECONDS)
                try:
                    progress.completed = int(await clients.commands.execute_command("LLEN", names.completed))
                except FetchboxError:
                    continue
    finally:
        await clients.close()


async def _problems(cluster: Cluster, digests: dict[str, str], folder: Path) -> list[str]:
    """Every broken promise, one line each."""
    opened = await Resources.open(cluster.config)
    try:
        names, redis = ListNames(cluster.config.worker), opened.redis.commands
        done = [job.read(entry) for entry in await redis.execute_command("LRANGE", names.completed, 0, -1)]
        by_path = Counter(found.filepath for found in done)
        found = [f"{name} was completed {by_path[str(folder / name)]} times" for name in digests]
        found = [line for line in found if not line.endswith(" 1 times")]
        ids = Counter(found.id for found in done)
        found += [f"the job {one} was completed {count} times" for one, count in ids.items() if count > 1]
        for name in (*names.queues, names.dead_letters, keys.FILE_SUSPECTS):
            if left := await redis.execute_command("LLEN", name):
                found.append(f"{left} jobs are left on {name}")
        if left := await redis.execute_command("ZCARD", keys.FILE_DELAYED):
            found.append(f"{left} jobs still wait for another attempt")
        async for name in redis.scan_iter(match=names.processing_glob, count=1000):
            if left := await redis.execute_command("LLEN", name):
                found.append(f"{left} jobs are left on {name.decode()}")
        for name, digest in digests.items():
            stored = await opened.objects.get(cluster.config.object_store.bucket, f"files/{name}")
            if stored is None or sha256(stored).hexdigest() != digest:
                found.append(f"the object of {name} is {'missing' if stored is None else 'wrong'}")
        return found
    finally:
        await opened.close()


def _run(arguments: argparse.Namespace, data: Path) -> list[str]:
    folder = data / "inbox"
    folder.mkdir(parents=True)
    cluster, progress = Cluster(data / "cluster", more=_more(folder), quiet=_QUIET), Progress()
    victims = {name: victim for name, victim in cluster.victims.items() if name != "ingest"}
    killer = Killer(victims, arguments.seed, arguments.pause, progress)
    writer = _Writer(folder, arguments.files, arguments.spread, arguments.seed, progress)
    try:
        cluster.start()
        killer.start()
        writer.start()
        started = time.monotonic()
        try:
            asyncio.run(_work(cluster, arguments, progress))
        finally:
            print(f"{time.monotonic() - started:.1f} s, killed {dict(killer.killed)}, {progress}")
        killer.rest()
        return asyncio.run(_problems(cluster, writer.digests, folder))
    except TimeoutError:
        return [f"not done within {arguments.timeout:g} s: {progress}"]
    finally:
        killer.close()
        cluster.stop()


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = command.options("benchmarks.chaos.files", __doc__)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--spread", type=float, default=20.0, help="seconds over which the files are written")
    return command.verdict(parser, _run, "every file is stored once, as promised")


if __name__ == "__main__":
    sys.exit(main())
