"""The connections of one process, opened once by its composition root and handed to every service in it."""

from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import Clock, SystemClock
from kernel.objects import ObjectStore
from kernel.redis import RedisClients


@dataclass(frozen=True, slots=True)
class Resources:
    """What a service may hold on to."""

    redis: RedisClients
    objects: ObjectStore
    clock: Clock

    @classmethod
    async def open(cls, config: Config, clock: Clock | None = None) -> "Resources":
        """Connects to Redis; the object store is reached at its first use."""
        redis = await RedisClients.open(config.redis)
        return cls(redis, ObjectStore(config.object_store), clock or SystemClock())

    async def close(self) -> None:
        """Closes every connection; safe to call twice."""
        await self.redis.close()
