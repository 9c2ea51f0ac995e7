"""A process that tells the story of a run that is opened: `tail_writer.py ADDRESS FLOW_ID`."""

import asyncio
import sys

from journal_rig import redis_config, story, tell

from flows.journal.redis_journal import RedisJournal
from flows.model.types import Run
from kernel.redis.clients import RedisClients


async def main(address: str, flow_id: str) -> None:
    config = redis_config(address)
    clients = await RedisClients.open(config.redis)
    journal = RedisJournal(clients, config)
    run = Run(flow_id, "example-flow")
    await tell(journal, run, story(run))
    await journal.close()
    await clients.close()


asyncio.run(main(*sys.argv[1:]))
