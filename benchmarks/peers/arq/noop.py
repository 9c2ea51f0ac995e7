"""arq's no-op task; each setting as its documentation of `Worker` has it, unless a comment says why not."""

import asyncio
import os
import pickle
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.constants import result_key_prefix

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # arq takes the loop of the policy
_SETTINGS = RedisSettings(port=int(os.environ["BENCH_PORT"]))
PACKAGES = ("arq", "redis", "hiredis", "uvloop")
LOGGING = {"version": 1, "loggers": {"arq": {"level": "WARNING"}}}  # two lines a job otherwise


async def noop(_context: dict[str, Any], _payload: dict[str, Any]) -> None:
    """Nothing."""


class WorkerSettings:
    """What the worker runs with. Results are kept for an hour, which is the default."""

    functions = (noop,)
    redis_settings = _SETTINGS
    max_jobs = int(os.environ["BENCH_SLOTS"])
    poll_delay = 0.01  # the default of 0.5 s would be the rate: arq polls, and starts at most max_jobs a poll


class Client:
    """Enqueues as an application does, and sees results."""

    def __init__(self, redis: ArqRedis) -> None:
        self._redis = redis

    @classmethod
    async def open(cls) -> "Client":
        """Connected, with a connection for each concurrent call, as arq's pool does."""
        return cls(await create_pool(_SETTINGS))

    async def enqueue(self, payload: dict[str, Any]) -> str:
        """The id of the new job."""
        job = await self._redis.enqueue_job("noop", payload)
        return job.job_id

    async def done(self, job_id: str) -> bool:
        """Whether there is a result."""
        return bool(await self._redis.exists(result_key_prefix + job_id))

    async def finished(self) -> int:
        """How many results of a success there are."""
        keys = [key async for key in self._redis.scan_iter(f"{result_key_prefix}*", 1000)]
        values = [await self._redis.mget(keys[at : at + 1000]) for at in range(0, len(keys), 1000)]
        return sum(pickle.loads(value)["s"] for chunk in values for value in chunk)  # its own results
