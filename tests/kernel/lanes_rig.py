"""Both lanes of one worker on a real server, as a worker service has them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from lane_rig import Rig
from list_rig import ListRig

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import SystemClock
from kernel.queue.files.lane import ListLane
from kernel.queue.lanes import Lanes
from kernel.queue.streams.worker import WorkerLane
from kernel.queue.work.retry import RetryRule
from kernel.queue.work.types import Claim
from kernel.redis.clients import RedisClients


class Both:
    """The rigs of either lane, on the same connections."""

    def __init__(self, config: Config, clients: RedisClients) -> None:
        self.config = config
        self.clients = clients
        self.tasks = Rig(config, clients)
        self.files = ListRig(config, clients)
        self.started: list[Lanes] = []

    async def lanes(self, worker: str = "w1", block: float = 0.3) -> Lanes:
        """Started lanes, stopped with the rig."""
        clock = SystemClock()
        stream = WorkerLane(
            self.clients,
            self.config,
            worker,
            clock,
            random.Random(1),
            finalizes=lambda _: False,
            retry_rule=lambda _: RetryRule(3, 0.001, 0.02),
        )
        made = Lanes(stream, ListLane(self.clients, self.config, worker, clock), clock, block)
        await made.start()
        self.started.append(made)
        return made

    async def claim(self, lanes: Lanes, count: int, patience: float = 20.0) -> list[Claim]:
        """Exactly so many claims of either kind."""
        claims: list[Claim] = []
        async with asyncio.timeout(patience):
            while len(claims) < count:
                claims += await lanes.claim(count - len(claims), 0.2)
        assert len(claims) == count
        return claims


@contextlib.asynccontextmanager
async def both(config: Config) -> AsyncIterator[Both]:
    """An opened rig; whatever it started is stopped."""
    clients = await RedisClients.open(config.redis)
    made = Both(config, clients)
    try:
        yield made
    finally:
        for lanes in made.started:
            await lanes.stop()
        await clients.close()
