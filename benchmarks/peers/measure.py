"""One run of one contestant: enqueue, process, compare with the library's own account, then latency and bulk."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import Contestant, Server
from cli.embedded.process import LocalProcess

_POLL_SECONDS = 0.005
_WARM_UP = 0.1
"""The part of the jobs that a worker may complete before the clock starts."""
_STOCK = (("stream-node-max-bytes", "4096"), ("auto-aof-rewrite-percentage", "0"), ("appendfsync", "everysec"))
_PARALLEL = 64
_BULK = 500


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of everyone."""

    jobs: int
    slots: int
    latency_jobs: int
    latency_pause: float
    """Seconds between the jobs of the lightly loaded part."""
    patience: float
    """Seconds after which a part has failed."""


@dataclass(slots=True)
class Figures:
    """What one run gave; None where it was not measured. Rates are jobs a second, costs are us of CPU a job."""

    versions: str
    enqueued: float
    redis_enqueue: float
    queued_bytes: float
    bulk: float | None = None
    processed: float | None = None
    worker: float | None = None
    redis_process: float | None = None
    finished_bytes: float | None = None
    latencies: list[float] | None = None


class Run:
    """One contestant on an empty server."""

    def __init__(self, contestant: Contestant, server: Server, load: Load, folder: Path) -> None:
        """`folder` takes the worker's log."""
        self._who = contestant
        self._server = server
        self._load = load
        self._log = folder / f"{contestant.name}.log"
        port = str(server.connection_pool.connection_kwargs["port"])
        own = {name: text.format(port=port, slots=load.slots) for name, text in contestant.environ.items()}
        self._environ = os.environ | {"BENCH_PORT": port, "BENCH_SLOTS": str(load.slots)} | own

    def __call__(self) -> Figures:
        """All parts. `SystemExit` where jobs are missing or it takes too long."""
        self._fresh()
        with self._running(self._who.service):
            figures = self._enqueue()
            with self._running(self._who.worker) as worker:
                self._process(figures, worker)
                finished = self._client("finished")["finished"]
                if finished != self._load.jobs:
                    told = f"{self._who.name}: only {finished} of {self._load.jobs} jobs finished"
                    raise SystemExit(f"{told}\n{worker.log_tail()}")
                figures.finished_bytes = (self._memory() - self._empty) / self._load.jobs
                figures.latencies = self._latencies()
            self._fresh()
            figures.bulk = self._client("bulk", self._load.jobs, _BULK)["per_second"]
        return figures

    def _fresh(self) -> None:
        for name, value in _STOCK:
            self._server.config_set(name, value)
        self._server.execute_command("FLUSHALL", "SYNC")  # type: ignore[no-untyped-call]  # redis-py leaves it so
        self._server.bgrewriteaof()
        while self._server.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(_POLL_SECONDS)
        self._empty = self._memory()

    def _enqueue(self) -> Figures:
        before = self._redis_cpu()
        told = self._client("enqueue", self._load.jobs, _PARALLEL)
        cost = 1e6 * (self._redis_cpu() - before) / self._load.jobs
        queued = self._who.left(self._server)
        if queued != self._load.jobs:
            raise SystemExit(f"{self._who.name}: {queued} of {self._load.jobs} jobs are on the queue")
        queued_bytes = (self._memory() - self._empty) / self._load.jobs
        return Figures(told["versions"], told["per_second"], cost, queued_bytes)

    def _process(self, figures: Figures, worker: LocalProcess) -> None:
        """Watches Redis until no job is left; the clock starts when the worker is warm."""
        jobs, deadline = self._load.jobs, time.monotonic() + self._load.patience
        warm: tuple[int, float, float, float] | None = None
        while left := self._who.left(self._server):
            if warm is None and left <= (1 - _WARM_UP) * jobs:
                warm = left, time.perf_counter(), cpu(worker.pid), self._redis_cpu()
            if not worker.running or time.monotonic() > deadline:
                state = "did not end in time" if worker.running else "the worker ended"
                raise SystemExit(f"{self._who.name}: {state}, {left} of {jobs} left\n{worker.log_tail()}")
            time.sleep(_POLL_SECONDS)
        if warm is None:
            raise SystemExit(f"{self._who.name}: too few jobs to measure")
        count, started, worker_cpu, redis_cpu = warm
        figures.processed = count / (time.perf_counter() - started)
        figures.worker = 1e6 * (cpu(worker.pid) - worker_cpu) / count
        figures.redis_process = 1e6 * (self._redis_cpu() - redis_cpu) / count

    def _latencies(self) -> list[float]:
        warm_up = self._load.latency_jobs // 10
        told = self._client("latency", warm_up + self._load.latency_jobs, self._load.latency_pause)
        found: list[float] = told["ms"][warm_up:]
        return found

    @contextmanager
    def _running(self, command: list[str] | None) -> Iterator[LocalProcess]:
        """A process of the contestant; one that has nothing to run where there is no command."""
        argv = [part.format(slots=self._load.slots) for part in command or ()]
        child = LocalProcess(
            self._who.name, argv, self._log, lambda: True, environ=self._environ, directory=self._who.folder
        )
        if argv:
            child.start()
        try:
            yield child
        finally:
            child.stop()

    def _client(self, *command: str | float) -> dict[str, Any]:
        argv = [*self._who.client, *map(str, command)]
        try:
            done = subprocess.run(
                argv,
                cwd=self._who.folder,
                env=self._environ,
                check=False,
                capture_output=True,
                text=True,
                timeout=self._load.patience,
            )
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"{self._who.name}: {command[0]} did not end in {self._load.patience:g} s") from error
        if done.returncode:
            raise SystemExit(f"{self._who.name}: {command[0]} failed:\n{done.stderr}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    def _redis_cpu(self) -> float:
        """Seconds of the server, all of its threads."""
        told: dict[str, Any] = self._server.info("cpu")
        return float(told["used_cpu_sys"]) + float(told["used_cpu_user"])

    def _memory(self) -> int:
        """Bytes of what is stored: without the buffers of clients and of the append-only file."""
        told: dict[str, Any] = self._server.info("memory")
        return int(told["used_memory"]) - int(told["mem_clients_normal"]) - int(told["mem_aof_buffer"])


def cpu(pid: int) -> float:
    """Seconds of CPU of a process and its children, to the nanosecond: each process has a clock on Linux."""
    own = time.clock_gettime(~pid << 3 | 2)
    return own + sum(cpu(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (thread / "children").read_text().split())
    return found
