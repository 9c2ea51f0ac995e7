"""A producer of one directory on a real server, and what it has put onto the lists."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import defaults
from kernel.config.values import duration
from kernel.queue.files.names import ListNames
from kernel.service.resources import Resources
from kernel.service.service import Service
from kernel.telemetry import metrics
from producer_svc import bootstrap

PATIENCE = 30.0


def settings(addr: str, folder: Path, **producer: Any) -> Config:
    """No rate limit, scans that follow each other closely, and files that settle at once, unless told otherwise."""
    config = defaults()
    config.redis.addr = addr
    config.observability.metrics_port = 0
    config.producer.scan_dir = str(folder)
    config.producer.rate_limit_per_sec = 0
    wanted = {"scan_interval": "100ms", "settle": "0s", **producer}
    for name, value in wanted.items():
        if name in ("scan_interval", "settle"):
            getattr(config.producer, name).CopyFrom(duration(value))
        elif isinstance(value, list):
            del getattr(config.producer, name)[:]
            getattr(config.producer, name).extend(value)
        else:
            setattr(config.producer, name, value)
    return config


class Box:
    """What can be seen from outside."""

    def __init__(self, config: Config, resources: Resources) -> None:
        self.config = config
        self.redis = resources.redis.commands
        self.resources = resources
        self.names = ListNames(config.worker)
        self.folder = Path(config.producer.scan_dir)

    async def jobs(self) -> list[dict[str, Any]]:
        """Every job on the queues, the oldest first, the highest priority first."""
        found: list[dict[str, Any]] = []
        for queue in self.names.queues:
            found += [json.loads(payload) for payload in reversed(await self.redis.lrange(queue, 0, -1))]
        return found

    async def paths(self) -> list[str]:
        """The files of the jobs, below the directory, sorted."""
        return sorted(job["filepath"].removeprefix(f"{self.folder}/") for job in await self.jobs())

    async def enqueued(self, *names: str) -> None:
        """Waits until these and no others are on the queues, each once."""
        wanted = sorted(names)
        await until(lambda: self._are(wanted), lambda: f"wanted {wanted}")
        assert await self.paths() == wanted

    async def _are(self, wanted: list[str]) -> bool:
        found = await self.paths()
        assert len(found) == len(set(found)) or len(wanted) != len(set(wanted)), f"twice: {found}"
        return found == wanted

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Service]:
        """A producer that runs meanwhile."""
        service = await bootstrap.build(self.config, self.resources)
        await service.start()
        try:
            yield service
        finally:
            await service.drain(5)
            await service.stop()

    async def scanned(self, times: int = 2) -> None:
        """Waits until so many scans have ended from now on."""
        before = scans()

        async def enough() -> bool:
            return scans() >= before + times

        await until(enough, lambda: "no scan ends")


@contextlib.asynccontextmanager
async def boxed(config: Config) -> AsyncIterator[Box]:
    """The connections of a test."""
    resources = await Resources.open(config)
    metrics.configure([], ListNames(config.worker).queues)
    try:
        yield Box(config, resources)
    finally:
        await resources.close()


def value(name: str, **labels: str) -> float:
    """A metric as it is now."""
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def scans() -> float:
    """Scans that ended, however."""
    return sum(value("fetchbox_producer_scans_total", outcome=how) for how in ("complete", "partial", "failed"))


def files(outcome: str) -> float:
    """Files with this outcome so far."""
    return value("fetchbox_producer_files_total", outcome=outcome)


async def until(true: Callable[[], Any], what: Callable[[], str] = lambda: "it never came true") -> None:
    """Polls until it is true."""
    ends = time.monotonic() + PATIENCE
    while not await true():
        assert time.monotonic() < ends, what()
        await asyncio.sleep(0.02)


def old(path: Path, seconds: float = 3600.0) -> Path:
    """The file with a time of change so long ago; negative is in the future."""
    when = time.time() - seconds
    os.utime(path, (when, when))
    return path


def write(path: Path, text: str = "x") -> Path:
    """A file with that text, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
