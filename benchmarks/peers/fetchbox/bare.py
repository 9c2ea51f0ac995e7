"""Task jobs as a bare script writes them: the keys of the queue and a Redis client, nothing of FetchBox."""

import json
import os
import time
import uuid
from collections.abc import Sequence
from typing import Any

import ledger
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

PACKAGES = ("redis", "hiredis", "uvloop")
_TTL_S = 3600


class Client:
    """Enqueues, and sees results."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    @classmethod
    async def open(cls) -> "Client":
        """Connected."""
        return cls(Redis(port=int(os.environ["BENCH_PORT"])))

    async def enqueue(self, payload: dict[str, Any]) -> str:
        """The id of the new job."""
        pipeline = self._redis.pipeline(transaction=False)
        job_id = _add(pipeline, payload)
        await pipeline.execute()
        return job_id

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        """All in one pipeline."""
        pipeline = self._redis.pipeline(transaction=False)
        for payload in payloads:
            _add(pipeline, payload)
        await pipeline.execute()

    async def done(self, job_id: str) -> bool:
        """Whether it ended well."""
        return await ledger.done(self._redis, job_id)

    async def finished(self) -> int:
        """How many ended well."""
        return await ledger.finished(self._redis)


def _add(pipeline: Pipeline, payload: dict[str, Any]) -> str:
    """Writes record, first event and queue entry, in that order; the id of the job."""
    job_id, now, text = str(uuid.uuid4()), str(time.time_ns() // 1_000_000), json.dumps(payload)
    record = {"job_id": job_id, "task": "chat", "payload": text, "status": "queued", "created_ts": now}
    record |= {"updated_ts": now, "ttl_s": str(_TTL_S), "result": "", "error": ""}
    pipeline.hset(f"job:{job_id}", mapping=record)
    pipeline.expire(f"job:{job_id}", _TTL_S)
    pipeline.xadd(f"job:{job_id}:events", {"type": "queued", "ts": now, "step": "gateway.enqueue", "data": "{}"})
    pipeline.expire(f"job:{job_id}:events", _TTL_S)
    pipeline.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": text})
    return job_id
