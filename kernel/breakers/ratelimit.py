"""How often a tenant may submit: counted in Redis, so that the limit holds over all ingest processes."""

from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError
from kernel.redis import keys
from kernel.redis.clients import RedisClients

_WINDOW_MS = 1000


class RateLimit:
    """At most `per_second` submits of a tenant in a second that begins with its first submit; 0 means no limit."""

    def __init__(self, clients: RedisClients, per_second: int) -> None:
        self._clients = clients
        self._per_second = per_second

    async def take(self, tenant: str, what: str = "submits") -> None:
        """Counts a submit, or what else is limited apart from those.

        Raises `RATE_LIMITED` with the seconds until the second is over.
        """
        _, refusal = await self.take_some(tenant, 1, what)
        if refusal is not None:
            raise refusal

    async def take_some(self, tenant: str, wanted: int, what: str = "submits") -> tuple[int, FetchboxError | None]:
        """Counts so many submits; how many of them may come, the first ones, and the refusal of the others."""
        if not self._per_second:
            return wanted, None
        key = keys.rate_limit(tenant, what)
        async with self._clients.commands.pipeline(transaction=True) as batch:
            batch.set(key, 0, px=_WINDOW_MS, nx=True)
            batch.incrby(key, wanted)
            batch.pttl(key)
            _, count, left_ms = await batch.execute()
        if count <= self._per_second:
            return wanted, None
        problem = f"more than {self._per_second} submits in a second"
        refusal = FetchboxError(errors_pb2.REASON_RATE_LIMITED, problem, retry_after=max(left_ms, 1) / 1000)
        return max(0, wanted - count + self._per_second), refusal
