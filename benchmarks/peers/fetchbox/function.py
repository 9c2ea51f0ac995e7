"""Jobs by the function behind CreateJob, in the process of the caller."""

import json
import os
from pathlib import Path
from typing import Any

import ledger

from kernel import ids
from kernel.config import loading as config
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.redis.clients import RedisClients

PACKAGES = ("fetchbox", "redis", "hiredis", "protobuf", "grpcio", "uvloop")


class Client:
    """Enqueues, and sees results."""

    def __init__(self, clients: RedisClients, queue: TaskQueue, ttl_s: int) -> None:
        self._clients = clients
        self._queue = queue
        self._ttl_s = ttl_s

    @classmethod
    async def open(cls) -> "Client":
        """Connected."""
        loaded = config.load(Path(__file__).with_name("fetchbox.toml"), os.environ)
        clients = await RedisClients.open(loaded.redis)
        queue = TaskQueue(clients, loaded)
        await queue.start()
        return cls(clients, queue, loaded.tasks.job_ttl_s)

    async def enqueue(self, payload: dict[str, Any]) -> str:
        """The id of the new job."""
        job_id = ids.uuid7()
        await self._queue.create(NewTask(job_id, "chat", json.dumps(payload).encode(), self._ttl_s))
        return job_id

    async def done(self, job_id: str) -> bool:
        """Whether it ended well."""
        return await ledger.done(self._clients.commands, job_id)

    async def finished(self) -> int:
        """How many ended well."""
        return await ledger.finished(self._clients.commands)
