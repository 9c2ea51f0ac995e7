"""`python -m benchmarks.chaos.flows [--seed N] [--flows 500] [--large]`: flow runs, while everything is killed.

Each run has six steps: two parallel branches with a gate each, and a gate of time before they meet. Events, webhooks
and hands come for the gates at random moments, some before the run is there. Workers (each has an engine), ingest and
Redis are killed at random, with `--large` the object store, too. Afterwards every timeline must be legal, with the
right end, seen whole by whoever tailed it; its projections must come to the same; and no step may have begun after its
completion was recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from benchmarks.chaos import command, flow_verify
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.flow_client import FlowClient, Flown, Progress
from benchmarks.chaos.killer import Killer

_STEP = """
[flows.chaos.steps.{key}]
needs = {needs}
handler = "benchmarks.chaos.steps:Noted"
options = {{ redis = "{redis}", more = {more} }}
with = {{ n = "${{input.n}}", kind = "${{input.kind}}", at = "{key}" }}
"""
_NEEDS = {
    "begin": [],
    "left": ["begin"],
    "left-end": ["left"],
    "right": ["begin"],
    "right-end": ["right"],
    "join": ["left-end", "right-end"],
}
_GATES = {
    "left": 'reason = "event", channel = "chaos.left", key = "${input.n}"',
    "right": 'reason = "webhook", channel = "chaos", key = "right/${input.n}", open = true',
    "join": 'reason = "time", delay = "300ms"',
}
_HEAD = """
[tasks]
max_backlog = 100000

[flow_engine]
lease = "3s"
check_interval = "5s"

[flows.chaos]
output = { n = "${input.n}", join = "${steps.join.result.{n: n, at: at}}", left = "${gates.left.payload}" }
"""


_LARGE = 70_000
"""Bytes: more than any event holds."""


def _toml(redis: str, more: int) -> str:
    parts = [_HEAD]
    for key, needs in _NEEDS.items():
        parts.append(_STEP.format(key=key, needs=needs, redis=redis, more=more))
        if gate := _GATES.get(key):
            parts.append(f"gate = {{ {gate} }}\n")
    return "".join(parts)


class _Flows(Cluster):
    """A cluster whose steps know where Redis is, and how many bytes more every third result is to have."""

    def __init__(self, data: Path, more: int) -> None:
        self._more = more
        super().__init__(data)

    def _toml(self, crash_limit: int) -> str:
        return super()._toml(crash_limit) + _toml(self.valkey.addr, self._more)


def _kinds(count: int, seed: int) -> list[str]:
    kinds = ["fail"] * (count // 20) + ["cancel"] * (count // 20) + ["flaky"] * (count // 10)
    kinds += ["ok"] * (count - len(kinds))
    Random(seed).shuffle(kinds)
    return kinds


async def _work(cluster: Cluster, arguments: argparse.Namespace, progress: Progress) -> list[Flown]:
    client = FlowClient(cluster.config.ingest.listen, arguments.seed, progress)
    slots = asyncio.Semaphore(arguments.clients)

    async def one(number: int, kind: str) -> Flown:
        async with slots:
            return await client.run(Flown(number, kind, f"chaos-{number}"))

    try:
        async with asyncio.timeout(arguments.timeout):
            kinds = enumerate(_kinds(arguments.flows, arguments.seed))
            return await asyncio.gather(*(one(number, kind) for number, kind in kinds))
    finally:
        await client.close()


def _run(arguments: argparse.Namespace, data: Path) -> list[str]:
    cluster, progress = _Flows(data, _LARGE if arguments.large else 0), Progress()
    victims = {name: victim for name, victim in cluster.victims.items() if arguments.large or name != "seaweedfs"}
    killer = Killer(victims, arguments.seed, arguments.pause, progress)
    try:
        cluster.start()
        killer.start()
        started = time.monotonic()
        try:
            runs = asyncio.run(_work(cluster, arguments, progress))
        finally:
            print(f"{time.monotonic() - started:.1f} s, killed {dict(killer.killed)}, {progress}")
        killer.rest()
        print(f"ends: {dict(Counter(run.end for run in runs))}")
        time.sleep(3 * 3.0)  # an engine that died before it had tidied up is followed by another after its lease
        return asyncio.run(flow_verify.problems(cluster.config, runs))
    except TimeoutError:
        return [f"not done within {arguments.timeout:g} s: {progress}"]
    finally:
        killer.close()
        cluster.stop()


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = command.options("benchmarks.chaos.flows", __doc__)
    parser.add_argument("--flows", type=int, default=500)
    parser.add_argument("--clients", type=int, default=100, help="runs that are tailed at the same time")
    parser.add_argument("--large", action="store_true", help="with results that are objects")
    return command.verdict(parser, _run, "all runs are as promised")


if __name__ == "__main__":
    sys.exit(main())
