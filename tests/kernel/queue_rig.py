"""The task queue on a real server, and those who share it: workers of ours and of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from lane_rig import settings

from fetchbox.config.v1.config_pb2 import Config
from kernel import ids
from kernel.clock import Clock, SystemClock
from kernel.config.loading import TASKS
from kernel.ledger import Ledger
from kernel.ledger.leftovers import Leftovers
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients

QUEUE_KEYS = [keys.QUEUE, keys.outbox(keys.QUEUE), keys.open_tasks(), keys.noted_tasks()]
FIELDS = ("job_id", "task", "payload", "status", "created_ts", "updated_ts", "ttl_s", "result", "error")
"""The fields of a record, literally as in seed 004."""


def new_task(task: str = "chat", payload: bytes = b'{"a":1}', **more: Any) -> NewTask:
    """A job that is to be."""
    return NewTask(job_id=more.pop("job_id", "") or ids.uuid7(), task=task, payload=payload, ttl_s=60, **more)


class QueueRig:
    """Everything that a test of the queue touches."""

    def __init__(self, config: Config, clients: RedisClients, clock: Clock) -> None:
        self.config = config
        self.clients = clients
        self.redis = clients.commands
        self.announced: list[tuple[list[str], int]] = []
        """Jobs that were announced together, and how many entries there were then."""
        self.leftovers = Leftovers(clients, clock, self._announce)
        self.queue = TaskQueue(clients, config, self.leftovers)
        self.ledger = Ledger(clients, config)

    @classmethod
    @asynccontextmanager
    async def on(cls, config: Config, clock: Clock | None = None) -> AsyncIterator[QueueRig]:
        clients = await RedisClients.open(config.redis)
        await clients.call(scripts.PROVISION, [keys.QUEUE, keys.cursors(keys.QUEUE)], [keys.GROUP_WORKERS])
        made = cls(config, clients, clock or SystemClock())
        await made.queue.start()
        yield made
        await made.queue.stop()
        await clients.close()

    async def count_some(self, most: int) -> bool:
        """A part of a new count: whether there is more to count."""
        names = [keys.QUEUE, keys.open_tasks(), keys.counting_tasks()]
        return bool(await self.clients.call(scripts.TASK_COUNT, names, [most]))

    async def admit(self, new: NewTask, limit: int = 200, task_limit: int = 0) -> int:
        """The first step alone: 0 where there was room."""
        reply = await self.clients.call(scripts.TASK_ADMIT, QUEUE_KEYS, [limit, 0, new.task, new.job_id, task_limit])
        return int(reply[2])

    async def make(self, new: NewTask, *, fresh_ms: int = -1, key: str = "") -> int:
        """The second step alone: 1 where it made the job, 0 where that was there, -1 where it must not be made."""
        at = await self.clients.now_ms()
        names = [keys.job(new.job_id), keys.job_events(new.job_id), *QUEUE_KEYS, keys.job_index()]
        names += [keys.expiring_index(), keys.STATES, key or keys.job(new.job_id)]
        args = [new.task, new.job_id, new.payload, new.traceparent, new.flow, "gateway.enqueue", at, new.ttl_s]
        args += [fresh_ms, b"answer" if key else b"", new.tenant, *(["flow", new.flow] if new.flow else [])]
        return int((await self.clients.call(scripts.TASK_ACCEPT, names, args))[0])

    async def record_alone(self, new: NewTask) -> None:
        """What an earlier version left that died between record and entry."""
        at = await self.clients.now_ms()
        own = (new.job_id, new.task, new.payload, "queued", at, at, new.ttl_s, "", "")
        record = dict(zip(FIELDS, own, strict=True)) | ({"flow": new.flow} if new.flow else {})
        await self.redis.hset(keys.job(new.job_id), mapping=record)
        event = {"type": "queued", "ts": at, "step": "gateway.enqueue", "data": "{}"}
        await self.redis.xadd(keys.job_events(new.job_id), event)

    async def noted(self) -> dict[str, int]:
        """How many jobs count as being in the outbox, by task."""
        return {task.decode(): int(count) for task, count in (await self.redis.hgetall(keys.noted_tasks())).items()}

    async def add_foreign(self, job_id: str = "", task: str = "chat", entry: str = "*") -> str:
        """An entry of another gateway, without a record."""
        values = {"job_id": job_id or ids.uuid7(), "task": task, "payload": "{}"}
        return (await self.redis.xadd(keys.QUEUE, values, id=entry)).decode()

    async def deliver(self, count: int = 1, consumer: str = "bare") -> list[str]:
        """The ids of the next entries, now pending for a consumer."""
        reply = await self.redis.xreadgroup(keys.GROUP_WORKERS, consumer, {keys.QUEUE: ">"}, count)
        found = reply.values() if isinstance(reply, dict) else [rows for _, rows in reply]
        return [row[0].decode() for rows in found for row in _flat(rows)]

    async def acknowledge(self, *entries: str) -> None:
        """What our workers do with settled entries."""
        values = dict(await self.entries())
        pairs = [part for entry in entries for part in (entry, values[entry].get("task", "") * _ours(values[entry]))]
        await self.clients.call(scripts.TASK_ACKNOWLEDGE, keys.QUEUE_PLACES, [keys.GROUP_WORKERS, *pairs])

    async def end(self, job_id: str, status: str = "done") -> None:
        """What another's worker does to a record at its job's end."""
        await self.redis.hset(keys.job(job_id), "status", status)

    async def open(self) -> dict[str, int]:
        """How many entries of ours count as open, by task; tasks without any are left out."""
        found = await self.redis.hmget(keys.open_tasks(), TASKS)
        return {task: int(count) for task, count in zip(TASKS, found, strict=True) if count is not None}

    async def outbox(self) -> int:
        """How many jobs are admitted but not yet queued."""
        return int(await self.redis.zcard(keys.outbox(keys.QUEUE)))

    async def entries(self) -> list[tuple[str, dict[str, str]]]:
        """All entries of the queue, oldest first."""
        rows = await self.redis.xrange(keys.QUEUE)
        return [(row[0].decode(), {k.decode(): v.decode() for k, v in row[1].items()}) for row in rows]

    async def queued(self) -> list[str]:
        """The jobs on the queue, oldest first."""
        return [values["job_id"] for _, values in await self.entries()]

    async def record(self, job_id: str) -> dict[str, str]:
        """The hash of a job, as it is."""
        return {k.decode(): v.decode() for k, v in (await self.redis.hgetall(keys.job(job_id))).items()}

    async def counted(self) -> dict[str, int]:
        """How many entries of ours are on the queue, by task, told from the entries themselves."""
        found: dict[str, int] = {}
        for _, values in await self.entries():
            if _ours(values):
                found[values["task"]] = found.get(values["task"], 0) + 1
        return found

    async def _announce(self, job_ids: Sequence[str]) -> None:
        self.announced.append((list(job_ids), len(await self.entries())))


@asynccontextmanager
async def queue_rig(addr: str, limit: int = 200, clock: Clock | None = None, **limits: int) -> AsyncIterator[QueueRig]:
    """A rig whose tasks are all configured; `limits` are those of single tasks."""
    async with QueueRig.on(queue_config(addr, limit, **limits), clock) as made:
        yield made


def queue_config(addr: str, limit: int = 200, **limits: int) -> Config:
    """The defaults with these limits."""
    config = settings(addr)
    config.tasks.max_backlog = limit
    for task, most in limits.items():
        getattr(config.tasks, task).max_backlog = most
    return config


def _ours(values: dict[str, str]) -> bool:
    return "ledger" in values


def _flat(rows: list[Any]) -> list[Any]:
    nested = rows and isinstance(rows[0], list) and rows[0] and isinstance(rows[0][0], list | tuple)
    return [entry for part in rows for entry in part] if nested else rows
