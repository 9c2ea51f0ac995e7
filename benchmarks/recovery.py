"""Recovery time: a worker that holds 5,000 jobs is killed; how long until all are back, for lists and for streams.

    python -m benchmarks.recovery [--jobs 5000] [--ttl 10] [--interval 5] [--rounds 3] [--only lists,streams]

One Valkey process of the run. The victim is a process with one of our lanes that claims every job and is then killed
with SIGKILL. File jobs are back when they stand on their queues again, which `fetchbox serve --role=reaper` sees to, as
every worker does; stream entries when another worker's lane has claimed them all. Time counts from the kill. The bar:
the heartbeat's TTL and three passes, each pass being the interval with its greatest jitter and its budget of 200 ms.
The exit code is 1 where a job is missing or doubled, and 3 where the bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.bars import MISSED
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.log.topics import provision
from kernel.queue.files.lane import ListLane
from kernel.queue.files.names import ListNames
from kernel.queue.files.reaper import BUDGET_SECONDS
from kernel.queue.streams.stream import StreamLane
from kernel.queue.work.file_job import FileJob
from kernel.queue.work.retry import RetryRule
from kernel.redis import keys
from kernel.redis.clients import RedisClients

_PATIENCE = 300.0
_JITTER = 1.25


def _config(addr: str, ttl: float, interval: float) -> Config:
    config = defaults()
    config.redis.addr = addr
    for duration, value in (
        (config.worker.heartbeat_ttl, ttl),
        (config.worker.reap_interval, interval),
        (config.reaper.interval, interval),
    ):
        duration.FromMilliseconds(round(value * 1000))
    return config


def _lane(kind: str, clients: RedisClients, config: Config, worker: str) -> ListLane | StreamLane:
    if kind == "lists":
        return ListLane(clients, config, worker, SystemClock())
    rule = RetryRule(3, 0.1, 1.0)
    return StreamLane(clients, config, worker, SystemClock(), random.Random(1), lambda _: False, lambda _: rule)


async def _claim_all(lane: ListLane | StreamLane, jobs: int) -> None:
    """Claims so many and settles none."""
    count = 0
    while count < jobs:
        count += len(await lane.claim(min(500, jobs - count), 0.2))


async def _victim(kind: str, config: Config, jobs: int) -> None:
    clients = await RedisClients.open(config.redis)
    lane = _lane(kind, clients, config, "victim")
    await lane.start()
    await _claim_all(lane, jobs)
    print("holds", flush=True)
    await asyncio.Event().wait()


async def _fill(kind: str, clients: RedisClients, config: Config, jobs: int) -> Counter[bytes]:
    """The jobs, waiting; what they are."""
    pipe = clients.commands.pipeline(transaction=False)
    made: list[bytes] = []
    names = ListNames(config.worker)
    for number in range(jobs):
        if kind == "lists":
            queue = names.queues[number % len(names.queues)]
            made.append(FileJob(str(number), f"/in/{number}", 1, origin_queue=queue).encode())
            pipe.lpush(queue, made[-1])
        else:
            task = DownloadTask(
                job_id=str(number), job_type="default", resource_id="r", resource_index=1, url="http://a/"
            )
            made.append(task.SerializeToString())
            partition = keys.partition_of(str(number), config.streams.tasks.partitions)
            pipe.xadd(keys.stream(keys.TASKS, partition), {"payload": made[-1]})
    await pipe.execute()
    return Counter(made)


async def _killed(kind: str, arguments: argparse.Namespace, addr: str) -> float:
    """Starts the victim, waits until it holds everything, kills it; when that was."""
    argv = [sys.executable, "-m", "benchmarks.recovery", "--victim", kind, "--addr", addr]
    argv += ["--jobs", str(arguments.jobs), "--ttl", str(arguments.ttl), "--interval", str(arguments.interval)]
    victim = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    assert victim.stdout is not None  # for the types
    if await asyncio.wait_for(victim.stdout.readline(), _PATIENCE) != b"holds\n":
        raise RuntimeError("the victim ended before it held every job")
    victim.send_signal(signal.SIGKILL)
    at = time.monotonic()
    await victim.wait()
    return at


async def _back(clients: RedisClients, names: ListNames, jobs: int) -> None:
    """Waits until so many jobs stand on the queues."""
    while True:
        if sum([await clients.commands.llen(queue) for queue in names.queues]) >= jobs:
            return
        await asyncio.sleep(0.005)


async def _lists(arguments: argparse.Namespace, clients: RedisClients, config: Config) -> tuple[float, bool]:
    names = ListNames(config.worker)
    every = await _fill("lists", clients, config, arguments.jobs)
    milliseconds = f"{round(arguments.interval * 1000)}ms"
    own = {"REDIS_ADDR": clients.address, "FETCHBOX_REAPER_INTERVAL": milliseconds, "OBSERVABILITY_METRICS_PORT": "0"}
    own |= {"WORKER_HEARTBEAT_TTL": f"{round(arguments.ttl * 1000)}ms", "OBSERVABILITY_LOG_LEVEL": "error"}
    reaper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "serve", "--role=reaper"), env={**os.environ, **own}
    )
    try:
        at = await _killed("lists", arguments, clients.address)
        async with asyncio.timeout(_PATIENCE):
            await _back(clients, names, arguments.jobs)
        took = time.monotonic() - at
    finally:
        reaper.terminate()
        await reaper.wait()
    back = [job for queue in names.queues for job in await clients.commands.lrange(queue, 0, -1)]
    return took, Counter(back) == every


async def _streams(arguments: argparse.Namespace, clients: RedisClients, config: Config) -> tuple[float, bool]:
    await provision(clients, config)
    await _fill("streams", clients, config, arguments.jobs)
    at = await _killed("streams", arguments, clients.address)
    lane = _lane("streams", clients, config, "survivor")
    await lane.start()
    try:
        async with asyncio.timeout(_PATIENCE):
            await _claim_all(lane, arguments.jobs)
        took = time.monotonic() - at
        streams = [keys.stream(keys.TASKS, number) for number in range(config.streams.tasks.partitions)]
        held = [await clients.commands.xpending(stream, keys.GROUP_WORKERS) for stream in streams]
    finally:
        await lane.stop()
    names = {consumer["name"] for one in held for consumer in one["consumers"]}
    return took, sum(one["pending"] for one in held) == arguments.jobs and names == {b"survivor"}


async def _measure(arguments: argparse.Namespace) -> int:
    logging.getLogger("fetchbox").setLevel(logging.ERROR)  # each batch that the survivor takes is a warning
    passes = arguments.interval * _JITTER + BUDGET_SECONDS
    bar = arguments.ttl + 3 * passes
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    print(f"{arguments.jobs} jobs of a killed worker; TTL {arguments.ttl:g} s, a pass every {arguments.interval:g} s")
    lost = missed = False
    with tempfile.TemporaryDirectory() as folder:
        valkey = Valkey(Path(folder))
        valkey.start()
        try:
            for kind in arguments.only.split(","):
                measure = {"lists": _lists, "streams": _streams}[kind]
                for number in range(arguments.rounds):
                    valkey.flush()
                    config = _config(valkey.addr, arguments.ttl, arguments.interval)
                    clients = await RedisClients.open(config.redis)
                    took, whole = await measure(arguments, clients, config)
                    await clients.close()
                    good = whole and took <= bar
                    lost |= not whole
                    missed |= not good
                    verdict = "ok" if good else "MISSED" if whole else "LOST OR DOUBLED"
                    print(
                        f"{kind:<8} {number + 1}: recovery time {took:6.2f} s (bar {bar:.1f} s) {verdict}", flush=True
                    )
        finally:
            valkey.stop()
    return 1 if lost else MISSED if missed else 0


def main() -> int:
    """Runs, prints, and says whether the bar was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--ttl", type=float, default=10.0, help="seconds")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between passes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="lists,streams")
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    parser.add_argument("--addr", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.victim:
        config = _config(arguments.addr, arguments.ttl, arguments.interval)
        asyncio.run(_victim(arguments.victim, config, arguments.jobs))
        return 0
    return asyncio.run(_measure(arguments))


if __name__ == "__main__":
    sys.exit(main())
