"""List lanes on a real server, with short leases, for the tests of the priority lists."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.queue.files.lane import ListLane
from kernel.queue.files.names import ListNames
from kernel.queue.files.reaper import ListReaper
from kernel.queue.files.taking import FileGate
from kernel.queue.work.file_job import FileJob
from kernel.queue.work.types import Claim, Failure, Settled, Success
from kernel.redis import keys
from kernel.redis.clients import RedisClients

NEVER = Failure("VALIDATION_FILE_OUTSIDE", "not below any root")
PASSING = Failure("STORAGE_UNAVAILABLE", "the store is away")
_NUMBERS = itertools.count(1)


def settings(addr: str, *, ttl: float = 30.0, crash_limit: int = 3, move: float = 0.2) -> Config:
    """Defaults with fast retries and reaps, and blocked moves that end soon."""
    config = defaults()
    config.redis.addr = addr
    config.worker.heartbeat_ttl.FromNanoseconds(int(ttl * 1e9))
    config.worker.brpoplpush_timeout.FromNanoseconds(int(move * 1e9))
    config.worker.reap_interval.FromNanoseconds(50_000_000)
    config.worker.backoff.base.FromNanoseconds(1_000_000)
    config.worker.backoff.max.FromNanoseconds(20_000_000)
    config.worker.crash_limit = crash_limit
    config.reaper.base_delay.FromNanoseconds(1_000_000)
    return config


def payload(job_id: str = "", **more: Any) -> bytes:
    """A file job as a foreign producer writes it: spaces, and members that are nobody's business."""
    job_id = job_id or f"job-{next(_NUMBERS)}"
    members = {"id": job_id, "filepath": f"/data/{job_id}", "filesize": 3, "retries": 0, "mine": [1.50, {}]} | more
    return json.dumps(members).encode()


class ListRig:
    """Everything that a test of the list lane touches."""

    def __init__(self, config: Config, clients: RedisClients) -> None:
        self.config = config
        self.clients = clients
        self.redis = clients.commands
        self.names = ListNames(config.worker)
        self.high, self.low = self.names.queues
        self.lanes: list[ListLane] = []
        self.reaper = ListReaper(clients, config, SystemClock())

    async def lane(
        self, worker: str = "w1", gate: FileGate | None = None, clients: RedisClients | None = None
    ) -> ListLane:
        """A started lane, stopped with the rig."""
        made = ListLane(clients or self.clients, self.config, worker, SystemClock(), gate)
        await made.start()
        self.lanes.append(made)
        return made

    async def push(self, queue: str, *jobs: bytes) -> list[bytes]:
        """Jobs as anybody pushes them, in this order."""
        await self.redis.lpush(queue, *jobs)
        return list(jobs)

    async def fill(self, queue: str, count: int, **more: Any) -> list[bytes]:
        """So many jobs."""
        return await self.push(queue, *(payload(**more) for _ in range(count)))

    async def claim(self, lane: ListLane, count: int, patience: float = 20.0) -> list[Claim]:
        """Exactly so many claims."""
        claims: list[Claim] = []
        async with asyncio.timeout(patience):
            while len(claims) < count:
                claims += await lane.claim(count - len(claims), 0.2)
        assert len(claims) == count
        return claims

    async def nothing(self, lane: ListLane, wait: float = 0.2) -> None:
        """Asserts that there is nothing to claim."""
        assert await lane.claim(16, wait) == []

    async def settle(self, lane: ListLane, claims: Iterable[Claim], outcome: Success | Failure) -> list[str]:
        """What became of an outcome for each."""
        settled: list[Settled] = await asyncio.gather(*(lane.settle(claim, outcome) for claim in claims))
        return [one.outcome for one in settled]

    async def die(self, lane: ListLane) -> None:
        """What a SIGKILL leaves, as the reaper sees it once the heartbeat has expired."""
        await self.vanish(lane)
        await self.lapse(lane.worker_id)

    async def vanish(self, lane: ListLane) -> None:
        """Nothing more is sent, and nothing is given back."""
        heartbeat = lane._heartbeat
        assert heartbeat is not None
        lane._stopping = True
        for loop in (lane._promoter, lane._strays, lane._settling):
            await loop.stop()
        await lane._movers.drop()
        await asyncio.to_thread(heartbeat.stop)
        lane._link.close()
        lane._heartbeat = None
        self.lanes.remove(lane)

    async def lapse(self, worker: str) -> None:
        """The heartbeat of a worker has expired, long ago."""
        await self.redis.delete(self.names.heartbeat(worker))
        await self.redis.zadd(keys.FILE_WORKERS, {worker: 0})

    async def list(self, name: str) -> list[bytes]:
        """All of a list, the newest first."""
        found: list[bytes] = await self.redis.lrange(name, 0, -1)
        return found

    async def delayed(self) -> list[tuple[str, bytes, float]]:
        """Queue, job and due time in ms of what waits for its next attempt."""
        found = await self.redis.zrange(keys.FILE_DELAYED, 0, -1, withscores=True)
        parts = [(member.split(b"|", 2), due) for member, due in found]
        return [(queue.decode(), job, due) for (_, queue, job), due in parts]

    async def held(self, worker: str) -> list[bytes]:
        """What the processing lists of a worker hold."""
        return [
            *await self.list(self.names.processing(worker)),
            *await self.list(self.names.processing(keys.solo(worker))),
        ]

    async def places(self) -> dict[str, Counter[bytes]]:
        """Every list of jobs that there is, and the delay set."""
        found: dict[str, Counter[bytes]] = {}
        async for key in self.redis.scan_iter(match="jobqueue:*", _type="list"):
            found[key.decode()] = Counter(await self.list(key.decode()))
        found[keys.FILE_DELAYED] = Counter(job for _, job, _ in await self.delayed())
        return found


def named(job_id: str, **more: Any) -> bytes:
    """A job as our own producer writes it."""
    return FileJob(job_id, f"/data/{job_id}", 3, **more).encode()


@contextlib.asynccontextmanager
async def rig(config: Config) -> AsyncIterator[ListRig]:
    """An opened rig; whatever lanes it made are stopped."""
    clients = await RedisClients.open(config.redis)
    made = ListRig(config, clients)
    try:
        yield made
    finally:
        for lane in list(made.lanes):
            await lane.stop()
        await clients.close()
