"""A replay whose process dies between its two steps: `python -m tests.operator.dying_replay REDIS POSITION`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from fetchbox.operator.v1.operator_service_pb2 import ReplayDeadLettersRequest
from kernel.config.loading import defaults
from kernel.ledger import Ledger
from kernel.log.topics import Topics
from kernel.queue.announcements import Announcer
from kernel.redis.clients import RedisClients
from operator_svc.letter_streams import DeadLetters
from operator_svc.replays import Replays


class DyingLetters(DeadLetters):
    """Dies where the entry would be added."""

    async def requeue(
        self, once: str, fields: Sequence[str | bytes], *, since_ms: int = 0, counted: str = "", job_id: str = ""
    ) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return await super().requeue(once, fields, since_ms=since_ms, counted=counted, job_id=job_id)


async def replay(address: str, position: str) -> None:
    config = defaults()
    config.redis.addr = address
    clients = await RedisClients.open(config.redis)
    ledger, topics = Ledger(clients, config), Topics(clients, config)
    replays = Replays(DyingLetters(clients, config), ledger, topics, Announcer(ledger, topics), 3)
    await replays.replay(ReplayDeadLettersRequest(positions=[position]))


if __name__ == "__main__":
    asyncio.run(replay(*sys.argv[1:]))
