"""A ledger and lanes on a real server, with short leases, for the tests of the lane."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from kernel import ids
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.ledger import JobRecord, Ledger
from kernel.queue.streams.lending import LendingLane
from kernel.queue.streams.stream import Claim, Failure, Settled, StreamLane, Success
from kernel.queue.work.retry import RetryRule
from kernel.redis import keys
from kernel.redis.clients import RedisClients

M = TypeVar("M", bound=Message)
L = TypeVar("L", bound=StreamLane)

NEVER_HELD = Failure("DOWNLOAD_HTTP_404", "not there")
PASSING = Failure("DOWNLOAD_DNS", "no address")


def settings(addr: str, *, ttl: float = 30.0, crash_limit: int = 3) -> Config:
    """Defaults with fast retries and reaps."""
    config = defaults()
    config.redis.addr = addr
    config.worker.heartbeat_ttl.FromNanoseconds(int(ttl * 1e9))
    config.worker.reap_interval.FromNanoseconds(50_000_000)
    config.worker.backoff.base.FromNanoseconds(1_000_000)
    config.worker.backoff.max.FromNanoseconds(20_000_000)
    config.worker.crash_limit = crash_limit
    return config


def task(job_id: str, index: int, total: int, **more: Any) -> DownloadTask:
    """Resource `r{index}` of a job."""
    more.setdefault("resource_id", f"r{index}")
    more.setdefault("resource_index", index)
    more.setdefault("resources_total", total)
    return DownloadTask(job_id=job_id, job_type="default", url=f"http://site/{index}", **more)


class Rig:
    """Everything that a test of the lane touches."""

    def __init__(self, config: Config, clients: RedisClients) -> None:
        self.config = config
        self.clients = clients
        self.redis = clients.commands
        self.ledger = Ledger(clients, config)
        self.finalizing = False
        self.retries = config.worker.max_retries
        self.lanes: list[StreamLane] = []
        self.remote: set[str] = set()

    @property
    def streams(self) -> list[str]:
        return [keys.stream(keys.TASKS, p) for p in range(self.config.streams.tasks.partitions)]

    def lane_of(self, job_id: str) -> str:
        return keys.stream(keys.TASKS, keys.partition_of(job_id, self.config.streams.tasks.partitions))

    async def lane(self, worker: str = "w1") -> StreamLane:
        """A started lane, stopped with the rig."""
        return await self._started(StreamLane, worker)

    async def lending(self, worker: str = "w1-lender") -> LendingLane:
        """A started lane of the lending kind, stopped with the rig."""
        return await self._started(LendingLane, worker)

    async def _started(self, kind: type[L], worker: str) -> L:
        made = kind(
            self.clients,
            self.config,
            worker,
            SystemClock(),
            random.Random(1),
            lambda _: self.finalizing,
            self._rule,
            set(self.remote),
        )
        await made.start()
        self.lanes.append(made)
        return made

    async def submit(self, total: int, job_id: str = "", **more: Any) -> str:
        """A job as ingest makes it."""
        job_id = job_id or ids.uuid7()
        await self.ledger.enter_outbox(job_id)
        await self.ledger.accept(JobRecord(job_id=job_id, job_type="default", resource_total=total))
        tasks = [task(job_id, index, total, **more).SerializeToString() for index in range(1, total + 1)]
        assert await self.ledger.publish(job_id, tasks)
        return job_id

    async def direct(self, *tasks: DownloadTask) -> None:
        """Tasks as a direct producer adds them."""
        for one in tasks:
            await self.redis.xadd(self.lane_of(one.job_id), {"payload": one.SerializeToString()})

    async def claim(self, lane: StreamLane, count: int, patience: float = 20.0) -> list[Claim]:
        """Exactly so many claims."""
        claims: list[Claim] = []
        async with asyncio.timeout(patience):
            while len(claims) < count:
                claims += await lane.claim(count - len(claims), 0.2)
        assert len(claims) == count
        return claims

    async def nothing(self, lane: StreamLane, wait: float = 0.2) -> None:
        """Asserts that there is nothing to claim."""
        assert await lane.claim(16, wait) == []

    async def settle(self, lane: StreamLane, claims: Iterable[Claim], outcome: Success | Failure) -> list[Settled]:
        return list(await asyncio.gather(*(lane.settle(claim, outcome) for claim in claims)))

    async def die(self, lane: StreamLane) -> None:
        """What a SIGKILL leaves: nothing more is sent, nothing is given back, and the lease runs out at once."""
        heartbeat = lane._heartbeat
        assert heartbeat is not None
        await lane._settler.stop()
        await lane._reader.drop()
        await asyncio.to_thread(heartbeat.stop)
        lane._link.close()
        lane._reading.close()
        lane._heartbeat = None
        self.lanes.remove(lane)
        await self.lapse(lane.worker_id)

    async def lapse(self, worker: str) -> None:
        """The lease of a worker is over."""
        for stream in self.streams:
            await self.redis.zrem(keys.lease(stream), worker)
        # In the queue a worker that has no lease at all is one of others; the reaper forgets ours in time.
        held = [
            await self.redis.xpending_range(keys.QUEUE, keys.GROUP_WORKERS, "-", "+", 1, name)
            for name in (worker, f"{worker}.solo")
        ]
        if any(held):
            await self.redis.zadd(keys.lease(keys.QUEUE), {worker: 0})
        else:
            await self.redis.zrem(keys.lease(keys.QUEUE), worker)

    def _rule(self, claim: Claim) -> RetryRule:
        assert claim.job_id
        return RetryRule(self.retries, 0.001, 0.02)

    # Tasks of seed 004.

    async def recorded(self, task: str = "chat", payload: str = "{}", **more: str) -> str:
        """The record and first event of a queued job, as seed 004 has them; nothing expires."""
        job_id = str(uuid.uuid4())
        record = {"job_id": job_id, "task": task, "payload": payload, "status": "queued", "created_ts": "1000"}
        record |= {"updated_ts": "1000", "ttl_s": "60", "result": "", "error": ""} | more
        await self.redis.hset(keys.job(job_id), mapping=record)
        event = {"type": "queued", "ts": "1000", "step": "gateway.enqueue", "data": "{}"}
        await self.redis.xadd(keys.job_events(job_id), event)
        return job_id

    async def foreign(self, task: str = "chat", payload: str = "{}", **more: str) -> str:
        """A job as a gateway writes it that knows seed 004 and nothing of ours."""
        job_id = await self.recorded(task, payload, **more)
        for name in (keys.job(job_id), keys.job_events(job_id)):
            await self.redis.expire(name, 60)
        await self.enqueue(job_id, task, payload)
        return job_id

    async def create(self, task: str = "chat", payload: str = "{}", **more: str) -> str:
        """A job as ours are: with a record that does not expire, and counted; `more` is in record and entry."""
        job_id = await self.recorded(task, payload, **more)
        await self.redis.hincrby(keys.open_tasks(), task, 1)
        await self.enqueue(job_id, task, payload, ledger="1", **more)
        return job_id

    async def enqueue(self, job_id: str, task: str = "chat", payload: str = "{}", **more: str) -> str:
        """An entry of the queue; its id."""
        entry = {"job_id": job_id, "task": task, "payload": payload} | more
        return (await self.redis.xadd(keys.QUEUE, entry)).decode()

    async def record(self, job_id: str) -> dict[str, str]:
        """The hash of a job."""
        found = await self.redis.hgetall(keys.job(job_id))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def told(self, job_id: str) -> list[tuple[str, str]]:
        """Type and data of a job's events."""
        return [(event.type, event.data.decode()) for event in await self.ledger.events(job_id)]

    async def pending(self) -> int:
        """Entries that are not acknowledged."""
        found = [await self.redis.xpending(stream, keys.GROUP_WORKERS) for stream in (*self.streams, keys.QUEUE)]
        return sum(one["pending"] for one in found)

    async def settled(self) -> None:
        """Waits until nothing is pending."""
        await until(self.pending, lambda count: count == 0)

    async def published(self, topic: str, kind: type[M]) -> list[M]:
        """All messages of a topic, oldest first in each partition."""
        found: list[M] = []
        for stream in await self.redis.keys(f"{keys.NAMESPACE}{topic}:*"):
            found += [kind.FromString(fields[b"payload"]) for _, fields in await self.redis.xrange(stream)]
        return found

    async def statuses(self) -> list[JobStatus]:
        return await self.published(keys.STATUS, JobStatus)

    async def logs(self) -> list[JobLog]:
        return await self.published(keys.LOGS, JobLog)

    async def letters(self) -> list[DeadLetterTask]:
        return await self.published(keys.DLQ, DeadLetterTask)

    async def events(self, job_id: str) -> list[str]:
        return [event.type for event in await self.ledger.events(job_id)]


T = TypeVar("T")


async def until(read: Callable[[], Awaitable[T]], good: Callable[[T], bool], patience: float = 20.0) -> T:
    """Polls until what is read is good."""
    ends = time.monotonic() + patience
    while True:
        value = await read()
        if good(value):
            return value
        assert time.monotonic() < ends, f"still {value!r} after {patience} s"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def rig(config: Config) -> AsyncIterator[Rig]:
    """An opened rig; whatever lanes it made are stopped."""
    clients = await RedisClients.open(config.redis)
    made = Rig(config, clients)
    try:
        yield made
    finally:
        for lane in made.lanes:
            await lane.stop()
        await clients.close()
