"""Which flows there are, for whoever asks for runs by the name of their flow."""

from __future__ import annotations

from collections.abc import Collection

from kernel.errors import not_found
from kernel.redis import keys
from kernel.redis.clients import RedisClients


class KnownFlows:
    """The flows of the configuration, and those that have had runs."""

    def __init__(self, clients: RedisClients, configured: Collection[str]) -> None:
        self._clients = clients
        self._configured = frozenset(configured)

    async def require(self, flow_name: str) -> None:
        """Raises `NOT_FOUND` for the name of a flow that is neither configured nor has had any runs."""
        if flow_name in self._configured:
            return
        if not await self._clients.commands.execute_command("SISMEMBER", keys.FLOW_NAMES, flow_name):
            raise not_found(f"There is no flow {flow_name}: it is not configured, and no run of it is kept.")
