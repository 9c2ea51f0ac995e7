"""Jobs of tasks, ours and others', and what became of them."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from fetchbox.config.v1.config_pb2 import Config, Task
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, JobLog
from kernel.ids import uuid7
from kernel.ledger import Ledger
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.worker.conftest import eventually

ENDS = ("done", "error", "canceled")


def handled(config: Config, handler: str, task: str = "chat", **options: Any) -> Task:
    """Has a task done by one of the handlers of these tests."""
    found: Task = getattr(config.tasks, task)
    found.handler = f"tests.worker.task_handlers:{handler}"
    found.options = json.dumps(options).encode()
    return found


class Tasks:
    """Creates jobs of tasks and looks at them."""

    def __init__(self, config: Config, resources: Resources, queue: TaskQueue) -> None:
        self.config = config
        self.redis = resources.redis.commands
        self.ledger = Ledger(resources.redis, config)
        self._queue = queue

    async def create(self, payload: Any = None, task: str = "chat", **more: Any) -> str:
        """A job as the task service makes it; bytes are the payload as they are."""
        raw = payload if isinstance(payload, bytes) else json.dumps(payload or {}).encode()
        job_id = uuid7()
        await self._queue.create(NewTask(job_id, task, raw, 60, **more))
        return job_id

    async def do(self, *steps: Any, task: str = "chat") -> str:
        """A job for the handler `Scripted`."""
        return await self.create({"do": list(steps)}, task)

    async def foreign(self, payload: str | bytes = "{}", task: str = "chat", ttl_s: int = 60) -> str:
        """A job as a gateway writes it that knows seed 004 and nothing of FetchBox."""
        job_id, now = str(uuid.uuid4()), str(time.time_ns() // 1_000_000)
        record = {"job_id": job_id, "task": task, "payload": payload, "status": "queued", "created_ts": now}
        record |= {"updated_ts": now, "ttl_s": str(ttl_s), "result": "", "error": ""}
        await self.redis.hset(f"job:{job_id}", mapping=record)
        await self.redis.expire(f"job:{job_id}", ttl_s)
        event = {"type": "queued", "ts": now, "step": "gateway.enqueue", "data": "{}"}
        await self.redis.xadd(f"job:{job_id}:events", event)
        await self.redis.expire(f"job:{job_id}:events", ttl_s)
        await self.redis.xadd("jobs:stream", {"job_id": job_id, "task": task, "payload": payload})
        return job_id

    async def record(self, job_id: str) -> dict[str, str]:
        """The hash of a job."""
        found = await self.redis.hgetall(f"job:{job_id}")
        return {name.decode(): value.decode(errors="replace") for name, value in found.items()}

    async def events(self, job_id: str) -> list[tuple[str, Any]]:
        """Type and data of a job's events."""
        entries = await self.redis.xrange(f"job:{job_id}:events")
        return [(fields[b"type"].decode(), json.loads(fields[b"data"])) for _, fields in entries]

    async def kinds(self, job_id: str) -> list[str]:
        return [kind for kind, _ in await self.events(job_id)]

    async def text(self, job_id: str) -> str:
        """What its tokens say."""
        return "".join(data["text"] for kind, data in await self.events(job_id) if kind == "token")

    async def until(
        self, job_id: str, good: Callable[[dict[str, str]], bool], patience: float = 60.0
    ) -> dict[str, str]:
        record: dict[str, str] = {}

        async def met() -> bool:
            nonlocal record
            record = await self.record(job_id)
            return good(record)

        await eventually(met, patience, lambda: f"{job_id} is still {record}")
        return record

    async def ended(self, job_id: str, patience: float = 60.0) -> dict[str, str]:
        """The record once the job has ended; its events end with the same word, said once."""
        record = await self.until(job_id, lambda record: record["status"] in ENDS, patience)
        kinds = await self.kinds(job_id)
        assert [kind for kind in kinds if kind in ENDS] == [record["status"]] == kinds[-1:]
        return record

    async def result(self, job_id: str, patience: float = 60.0) -> Any:
        """What the job gave."""
        record = await self.ended(job_id, patience)
        assert record["status"] == "done", record
        return json.loads(record["result"])

    async def error(self, job_id: str, patience: float = 60.0) -> dict[str, Any]:
        """Why the job failed."""
        record = await self.ended(job_id, patience)
        assert (record["status"], record["result"]) == ("error", ""), record
        error: dict[str, Any] = json.loads(record["error"])
        return error

    async def told(self, job_id: str, kind: str, patience: float = 60.0) -> None:
        """Waits for an event of a kind."""

        async def met() -> bool:
            return kind in await self.kinds(job_id)

        await eventually(met, patience, lambda: f"{job_id} never told {kind}")

    async def queued(self) -> dict[str, int]:
        """How many entries of the queue each consumer holds."""
        consumers = await self.redis.xinfo_consumers(keys.QUEUE, keys.GROUP_WORKERS)
        return {one["name"].decode(): one["pending"] for one in consumers if one["pending"]}

    async def empty(self, patience: float = 60.0) -> None:
        """Waits until nothing is left of any entry; all that the ends of jobs make known has been written then."""

        async def met() -> bool:
            sides = (keys.open_tasks(), keys.redo(keys.QUEUE), keys.delayed(keys.QUEUE))
            return not await self.redis.xlen(keys.QUEUE) and not await self.redis.exists(*sides)

        await eventually(met, patience, lambda: "the queue is not empty")

    async def logs(self, job_id: str) -> list[JobLog]:
        lines: list[JobLog] = []
        for stream in await self.redis.keys(f"{keys.NAMESPACE}{keys.LOGS}:*"):
            lines += [JobLog.FromString(fields[b"payload"]) for _, fields in await self.redis.xrange(stream)]
        return [line for line in lines if line.job_id == job_id]

    async def letters(self) -> list[DeadLetterTask]:
        letters: list[DeadLetterTask] = []
        for stream in await self.redis.keys(f"{keys.NAMESPACE}{keys.DLQ}:*"):
            letters += [DeadLetterTask.FromString(fields[b"payload"]) for _, fields in await self.redis.xrange(stream)]
        return letters

    async def all_ended(self, jobs: list[str], patience: float = 60.0) -> list[dict[str, str]]:
        return list(await asyncio.gather(*(self.ended(job_id, patience) for job_id in jobs)))
