"""taskiq's no-op task on Redis streams, with the broker that taskiq-redis recommends for acknowledgement."""

import os
from typing import Any

from redis.asyncio import Redis
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

_URL = f"redis://127.0.0.1:{os.environ['BENCH_PORT']}"
_PREFIX = "result"
_CONNECTIONS = 2 * int(os.environ["BENCH_SLOTS"])  # the default of 50 would make slots wait for one another
PACKAGES = ("taskiq", "taskiq-redis", "redis", "uvloop")  # taskiq runs uvloop where it is installed

_results = RedisAsyncResultBackend(
    _URL, result_ex_time=3600, max_connection_pool_size=_CONNECTIONS, prefix_str=_PREFIX
)  # its documentation: set an expiry
broker = (
    # consumer_id: read what was enqueued before the first worker came; the default would skip it
    RedisStreamBroker(_URL, consumer_id="0", max_connection_pool_size=_CONNECTIONS)
    .with_result_backend(_results)
    .with_serializer(ORJSONSerializer())  # faster than its default, json
)


@broker.task(task_name="noop")
async def noop(_payload: dict[str, Any]) -> None:
    """Nothing."""


class Client:
    """Enqueues as an application does, and sees results."""

    @classmethod
    async def open(cls) -> "Client":
        """Connected; the pool has a connection for each concurrent call."""
        await broker.startup()
        return cls()

    async def enqueue(self, payload: dict[str, Any]) -> str:
        """The id of the new task."""
        return (await noop.kiq(payload)).task_id

    async def done(self, task_id: str) -> bool:
        """Whether there is a result."""
        return await _results.is_result_ready(task_id)

    async def finished(self) -> int:
        """How many results of a success there are."""
        async with Redis(connection_pool=_results.redis_pool) as redis:
            keys = [key async for key in redis.scan_iter(f"{_PREFIX}:*", 1000)]
            values = [await redis.mget(keys[at : at + 1000]) for at in range(0, len(keys), 1000)]
        return sum(not _results.serializer.loadb(value)["is_err"] for chunk in values for value in chunk)
