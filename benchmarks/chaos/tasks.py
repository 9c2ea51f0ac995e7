"""`python -m benchmarks.chaos.tasks [--seed N] [--tasks 10000]`: task jobs, while everything is killed.

Two acts. In the first, workers, ingest, gateway and Redis are killed at random under tasks that stream, fail, are
tried again, and block their worker's event loop for three heartbeats; every task is watched over SSE. In the second,
tasks kill their own process among innocent ones, while Redis and ingest are killed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.chaos import command, task_verify
from benchmarks.chaos.cluster import WORKERS, Cluster
from benchmarks.chaos.killer import Killer
from benchmarks.chaos.task_client import Progress, TaskClient, Watched, attempts
from cli.embedded.process import StartError

_HANDLER = """
[tasks]
max_backlog = 100000
job_ttl_s = 86400

[tasks.chat]
handler = "benchmarks.chaos.handlers:Chaotic"
"""
_HEARTBEAT = 3.0


@dataclass(frozen=True)
class Act:
    """What is run, and who is killed meanwhile."""

    name: str
    kinds: dict[str, int]
    """How many tasks of each kind."""
    crash_limit: int
    victims: frozenset[str]


def acts(count: int) -> list[Act]:
    """Both acts, for so many tasks in the first."""
    rare = max(1, count // 2000)
    kinds = {"block": rare, "fail": count // 50, "flaky": count // 20, "slow": count // 20, "tokens": count // 10}
    kinds["ok"] = max(0, count - sum(kinds.values()))
    workers = {f"worker-{i}" for i in range(WORKERS)}
    few = max(10, count // 100)
    return [
        Act("everything is killed", kinds, 100, frozenset(workers | {"valkey", "ingest", "gateway"})),
        Act(
            "tasks that kill", {"pill": max(1, few // 20), "ok": few, "tokens": few}, 3, frozenset({"valkey", "ingest"})
        ),
    ]


class _Supervisor(threading.Thread):
    """Starts workers again that end by themselves."""

    def __init__(self, cluster: Cluster, names: Sequence[str]) -> None:
        super().__init__(name="supervisor")
        self.starts = 0
        self._roles = [cluster.roles[name] for name in names]
        self._closed = threading.Event()

    def run(self) -> None:
        while not self._closed.wait(0.2):
            for role in self._roles:
                if not role.running:
                    try:
                        role.restart()
                        self.starts += 1
                    except StartError:
                        continue

    def close(self) -> None:
        """Ends the thread, and with it what it started."""
        self._closed.set()
        self.join()


def _run(act: Act, arguments: argparse.Namespace, data: Path) -> list[str]:
    cluster, progress = Cluster(data, crash_limit=act.crash_limit, more=_HANDLER, gateway=True), Progress()
    victims = {name: victim for name, victim in cluster.victims.items() if name in act.victims}
    killer = Killer(victims, arguments.seed, arguments.pause, progress)
    supervised = [name for name in cluster.roles if name.startswith("worker") and name not in act.victims]
    supervisor = _Supervisor(cluster, supervised)
    try:
        cluster.start()
        killer.start()
        supervisor.start()
        started = time.monotonic()
        try:
            tasks = asyncio.run(_work(act, cluster, arguments, progress))
        finally:
            print(f"{time.monotonic() - started:.1f} s, killed {dict(killer.killed)}, {progress}")
        killer.rest()
        _tell(tasks, supervisor.starts)
        time.sleep(2 * _HEARTBEAT)  # what is acknowledged last may wait for a reaper
        return asyncio.run(task_verify.problems(cluster.config, tasks))
    except TimeoutError:
        return [f"not done within {arguments.timeout:g} s: {progress}"]
    finally:
        killer.close()
        if supervisor.ident is not None:
            supervisor.close()
        cluster.stop()


async def _work(act: Act, cluster: Cluster, arguments: argparse.Namespace, progress: Progress) -> list[Watched]:
    client = TaskClient(f"http://{cluster.config.gateway.listen}", progress)
    kinds = [kind for kind, count in act.kinds.items() for _ in range(count)]
    Random(f"{arguments.seed}/{act.name}").shuffle(kinds)
    slots = asyncio.Semaphore(arguments.watchers)

    async def one(number: int, kind: str) -> Watched:
        async with slots:
            payload = {"n": number, "kind": kind, "seconds": 3 * _HEARTBEAT}
            return await client.run(Watched(number, kind), payload)

    try:
        async with asyncio.timeout(arguments.timeout):
            return await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
    finally:
        await client.close()


def _tell(tasks: Sequence[Watched], starts: int) -> None:
    begun = Counter(min(attempts(task.events), 5) for task in tasks if task.kind not in {"flaky", "pill"})
    again = sum(count for times, count in begun.items() if times > 1)
    print(f"begun more than once: {again} of {sum(begun.values())} {dict(sorted(begun.items()))}")
    pills = Counter(attempts(task.events) for task in tasks if task.kind == "pill")
    if pills:
        print(f"pills by their runs: {dict(pills)}; workers started again: {starts}")


def _acts(arguments: argparse.Namespace, data: Path) -> list[str]:
    found: list[str] = []
    for number, act in enumerate(acts(arguments.tasks)):
        print(f"{act.name}: {act.kinds}", flush=True)
        found += _run(act, arguments, data / f"act-{number + 1}")
    return found


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = command.options("benchmarks.chaos.tasks", __doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=200, help="clients that watch at the same time")
    return command.verdict(parser, _acts, "every task ended once, as promised")


if __name__ == "__main__":
    sys.exit(main())
