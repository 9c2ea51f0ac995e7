"""Several processes of ingest at one port: their parent starts them, looks after them and ends them.

Each binds the port with SO_REUSEPORT, and the kernel gives a new connection to one of them. One that dies is started
again, at once at first and more slowly the more often it dies. The parent's drain is theirs: each finishes what runs. A
child whose parent has gone drains too, for the pipe to its stdin has ended then.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import Clock, SystemClock
from kernel.config.addresses import split
from kernel.rooms import module
from kernel.tasks import ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("serve")
MODULE: Final = "cli.ingest_child"
READY: Final = b"ready\n"
"""What a child says once it serves; anything else is why it cannot."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_STEADY: Final = 60.0
"""Seconds after which a child's earlier deaths are forgotten."""
_ROLE: Final = "ingest"


def config_of(config: Config, number: int) -> Config:
    """The configuration of one child, the first being 1: its metrics are so many ports behind those of the parent."""
    child = Config()
    child.CopyFrom(config)
    child.ingest.processes = 1
    shown = child.observability
    if shown.metrics_listen:
        host, port = split(shown.metrics_listen)
        shown.metrics_listen = f"[{host}]:{port + number}" if ":" in host else f"{host}:{port + number}"
    elif shown.metrics_port:
        shown.metrics_port += number
    return child


class IngestProcesses:
    """A duty: `ingest.processes` processes that serve."""

    name = "ingest-processes"

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._processes: dict[int, Process] = {}
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Starts all; OSError, with what a child says, where one cannot serve."""
        numbers = range(1, self._config.ingest.processes + 1)
        await asyncio.gather(*map(self._begin, numbers))
        self._keepers = [asyncio.create_task(self._keep(number), name=f"ingest-{number}") for number in numbers]

    async def drain(self, grace: float) -> None:
        """Lets each finish what runs, and waits until they have ended."""
        await self._forget()
        for process in self._processes.values():
            _signal(process, signal.SIGTERM)
        waits = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        if waits:
            await asyncio.wait(waits, timeout=grace)

    async def stop(self) -> None:
        """Ends them at once; safe twice."""
        await self._forget()
        processes, self._processes = self._processes, {}
        for process in processes.values():
            _signal(process, signal.SIGKILL)
        await asyncio.gather(*(process.wait() for process in processes.values()))

    async def _forget(self) -> None:
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            await ended(keeper)

    async def _begin(self, number: int) -> None:
        """Starts one and waits until it serves."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module(MODULE)),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which tells its children
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._processes[number] = process
        told = config_of(self._config, number).SerializeToString()
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(len(told).to_bytes(4, "big") + told)
            await process.stdin.drain()
        except ConnectionError:
            log.debug("child_left")
        line = await process.stdout.readline()
        if line != READY:
            _signal(process, signal.SIGKILL)
            await process.wait()
            raise OSError(line.decode(errors="replace").strip() or f"process {number} ended before it served")

    async def _keep(self, number: int) -> None:
        """Starts one again whenever it has ended."""
        pause = _FIRST_PAUSE
        while True:
            since = self._clock.monotonic()
            code = await self._processes[number].wait()
            pause = _FIRST_PAUSE if self._clock.monotonic() - since > _STEADY else pause
            log.warn("child_ended", role=_ROLE, pid=self._processes[number].pid, status=code)
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                await self._begin(number)
            except OSError as error:
                log.warn("child_not_started", role=_ROLE, error=error)
            else:
                metrics.CHILDREN_RESTARTED.labels(_ROLE).inc()


def _signal(process: Process, number: int) -> None:
    if process.returncode is None:
        process.send_signal(number)
