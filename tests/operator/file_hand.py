"""Puts file jobs where producers, workers and reapers put them."""

import json
from dataclasses import dataclass
from hashlib import sha1

from fetchbox.config.v1.config_pb2 import Config
from kernel.queue.files.names import ListNames
from kernel.queue.work.file_job import FileJob, time_text, with_members
from kernel.redis import keys
from kernel.redis.clients import RedisClients


def digest(entry: bytes) -> str:
    """The name of a dead letter."""
    return sha1(entry).hexdigest()


def failed_at(number: int) -> str:
    """When the job of this number failed, in the seed's notation."""
    return time_text((1_700_000_000_000 + number) * 1_000_000)


@dataclass
class FileHand:
    """The lists as others leave them."""

    clients: RedisClients
    config: Config

    @property
    def names(self) -> ListNames:
        """The names of the lists."""
        return ListNames(self.config.worker)

    def job(self, number: int = 1, **members) -> bytes:
        """A job as our producer writes it, with further members."""
        path = f"/data/{number}.csv"
        made = FileJob(f"f{number}", path, 10 + number, priority="low", origin_queue=self.names.default)
        return with_members(made.encode(), **members)

    async def push(self, queue: str, *entries: bytes) -> None:
        """`LPUSH`, as everybody pushes."""
        await self.clients.commands.lpush(queue, *entries)

    async def dead(self, number: int = 1, code: str = "STORAGE_UNAVAILABLE", message: str = "no", **members) -> bytes:
        """A dead letter as a worker leaves it; its bytes."""
        failed = {"failure": {"code": code, "message": message}, "failed_at": failed_at(number)}
        entry = self.job(number, **{"retries": 3, **failed, **members})
        await self.push(self.names.dead_letters, entry)
        return entry

    async def letters(self) -> list[bytes]:
        """All dead letters, the newest first."""
        return await self.held(self.names.dead_letters)

    async def held(self, name: str) -> list[bytes]:
        """What is on a list, the newest first."""
        return await self.clients.commands.lrange(name, 0, -1)

    async def queued(self, queue: str = "") -> list[dict]:
        """The jobs of a queue, by default the lowest, the oldest first."""
        return [json.loads(entry) for entry in reversed(await self.held(queue or self.names.default))]

    async def worker(self, worker: str, *held: bytes, seen_ms_ago: int = 0, beats: bool = True) -> None:
        """A worker in the registry, with what it holds."""
        seen = await self.clients.now_ms() - seen_ms_ago
        await self.clients.commands.zadd(keys.FILE_WORKERS, {worker: seen})
        if beats:
            await self.clients.commands.set(self.names.heartbeat(worker), "{}", px=60_000)
        if held:
            await self.push(self.names.processing(worker), *held)
