"""Workers of file jobs as the reaper sees them: keys on a real server, put there by hand."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import Clock, SystemClock
from kernel.config.loading import defaults
from kernel.durations import millis
from kernel.queue.files.names import ListNames
from kernel.queue.files.reaper import ListReaper
from kernel.redis import keys
from kernel.redis.clients import RedisClients

HIGH, LOW = "jobqueue:high_priority", "jobqueue:low_priority"


def settings(addr: str, *, ttl_ms: int = 30_000) -> Config:
    """Defaults without pauses between pages; crashes do not matter unless the test says so."""
    config = defaults()
    config.redis.addr = addr
    config.worker.heartbeat_ttl.FromMilliseconds(ttl_ms)
    config.worker.crash_limit = 100
    config.reaper.base_delay.FromMilliseconds(0)
    return config


def job(name: str, queue: str = LOW, **more: object) -> bytes:
    """The bytes of a file job."""
    members = {"id": name, "filepath": f"/in/{name}", "filesize": 1, "priority": "low", "retries": 0}
    return orjson.dumps(members | {"origin_queue": queue} | more)


class StepClock(SystemClock):
    """Each look at this clock takes so many seconds, so that a budget lasts for a known number of looks."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 1.0
        self.step = step
        self.slept: list[float] = []

    def monotonic(self) -> float:
        self.now += self.step
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Fleet:
    """The workers and the lists around them."""

    def __init__(self, config: Config, clients: RedisClients) -> None:
        self.config = config
        self.clients = clients
        self.redis = clients.commands
        self.names = ListNames(config.worker)
        self.ttl_ms = millis(config.worker.heartbeat_ttl)

    def reaper(self, clock: Clock | None = None) -> ListReaper:
        """A reaper with a memory of its own, whose time for a pass does not run out unless `clock` says so."""
        return ListReaper(self.clients, self.config, clock or StepClock())

    async def take(self, worker: str, jobs: Iterable[bytes]) -> None:
        """Puts jobs onto the processing list as BRPOPLPUSH does: the newest first."""
        await self.redis.lpush(self.names.processing(worker), *jobs)

    async def beat(self, worker: str, ttl_ms: int = 0) -> None:
        """The heartbeat of a worker of ours."""
        await self.redis.set(self.names.heartbeat(worker), b"{}", px=ttl_ms or self.ttl_ms)
        await self.redis.zadd(keys.FILE_WORKERS, {worker: await self.clients.now_ms()})

    async def die(self, worker: str, *jobs: bytes, ago_ms: int = 0) -> None:
        """A worker that held these jobs when it died, so long ago that everybody may know."""
        if jobs:
            await self.take(worker, jobs)
        await self.redis.delete(self.names.heartbeat(worker))
        last = await self.clients.now_ms() - (ago_ms or self.ttl_ms + 1000)
        await self.redis.zadd(keys.FILE_WORKERS, {worker: last})

    async def held(self, worker: str) -> list[bytes]:
        """The processing list of a worker, the newest first."""
        return await self.items(self.names.processing(worker))

    async def items(self, name: str) -> list[bytes]:
        """A list as it stands."""
        found: list[bytes] = await self.redis.lrange(name, 0, -1)
        return found

    async def known(self) -> dict[bytes, float]:
        """The registry."""
        found: list[tuple[bytes, float]] = await self.redis.zrange(keys.FILE_WORKERS, 0, -1, withscores=True)
        return dict(found)
