"""streaQ's no-op task."""

import os
from collections.abc import Sequence
from typing import Any

from streaq import TaskStatus, Worker

PACKAGES = ("streaq", "coredis", "uvloop")

worker: Worker[None] = Worker(
    redis_url=f"redis://127.0.0.1:{os.environ['BENCH_PORT']}",
    concurrency=int(os.environ["BENCH_SLOTS"]),  # it prefetches as many, which is the default
    anyio_kwargs={"use_uvloop": True},
)


@worker.task(silent=True, ttl=3600)  # two log lines a task otherwise; results for as long as those of the others
async def noop(_payload: dict[str, Any]) -> None:
    """Nothing."""


class Client:
    """Enqueues as an application does, and sees results."""

    @classmethod
    async def open(cls) -> "Client":
        """Connected."""
        await worker.__aenter__()
        return cls()

    async def enqueue(self, payload: dict[str, Any]) -> str:
        """The id of the new task."""
        return (await noop.enqueue(payload)).id

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        """All in one call, as its documentation advises for many."""
        await worker.enqueue_many([noop.enqueue(payload) for payload in payloads])

    async def done(self, task_id: str) -> bool:
        """Whether there is a result."""
        return bool(await worker.redis.exists([worker.results_key + task_id]))

    async def finished(self) -> int:
        """How many results of a success there are."""
        results = await worker.get_tasks_by_status(TaskStatus.DONE, limit=1_000_000)
        return sum(result.success for result in results)
