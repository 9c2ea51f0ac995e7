"""The connections of one process, opened once by its composition root and handed to every service in it."""

from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1.errors_pb2 import REASON_FAILED_PRECONDITION
from kernel.clock import Clock, SystemClock
from kernel.errors import FetchboxError
from kernel.objects import ObjectStore
from kernel.redis.clients import RedisClients
from kernel.service.patience import patiently
from kernel.telemetry.logs import get_logger

log = get_logger("resources")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a service may hold on to."""

    redis: RedisClients
    objects: ObjectStore
    clock: Clock

    @classmethod
    async def open(cls, config: Config, clock: Clock | None = None) -> "Resources":
        """Connects to Redis, for as long as `redis.start_patience`; the object store is reached at its first use.

        Raises `UNAVAILABLE` where Redis does not answer in time, `FAILED_PRECONDITION` where it may evict what was
        accepted.
        """
        clock = clock or SystemClock()
        redis = await patiently(lambda: _opened(config), config.redis, clock)
        return cls(redis, ObjectStore(config.object_store), clock)

    async def close(self) -> None:
        """Waits for uploads that are being aborted, then closes every connection; safe to call twice."""
        await self.objects.close()
        await self.redis.close()


async def _opened(config: Config) -> RedisClients:
    """Connections to a server that may be used."""
    redis = await RedisClients.open(config.redis)
    try:
        await _judge(redis)
    except BaseException:
        await redis.close()
        raise
    return redis


async def _judge(redis: RedisClients) -> None:
    """Says what of the server's configuration may lose work; one that evicts keys when memory is short is refused."""
    for problem in await redis.durability_problems():
        log.warn("redis_may_lose_work", error=problem)
    if await redis.evicts():
        raise FetchboxError(
            REASON_FAILED_PRECONDITION,
            f"Redis at {redis.address} has a `maxmemory` and evicts keys when it is reached, accepted work among them: "
            "set `maxmemory-policy` to `noeviction`",
        )
