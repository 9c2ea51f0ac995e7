"""The plain loop: slots that call `BRPOPLPUSH` with one second, the high queue first.

    python -m benchmarks.peers.lists.literal PORT SLOTS

Each slot is the simplest worker that shares the priority lists: pop, set the heartbeat, work (nothing), push onto the
completed list, remove from the processing list, delete the heartbeat; the last three in one pipeline, to be kind. A
connection a slot.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
import redis.asyncio
import uvloop

_QUEUES = ("jobqueue:high_priority", "jobqueue:low_priority")
_TIMEOUT = 1
_HEARTBEAT_SECONDS = 30


async def _slot(port: int, number: int) -> None:
    client: Any = redis.asyncio.Redis(port=port, single_connection_client=True)
    processing, heartbeat = f"jobqueue:worker:{number}:processing", f"jobqueue:processing:worker:{number}"
    while True:
        for queue in _QUEUES:
            payload = await client.brpoplpush(queue, processing, _TIMEOUT)
            if payload is not None:
                break
        else:
            continue
        await client.set(heartbeat, payload, ex=_HEARTBEAT_SECONDS)
        orjson.loads(payload)
        done = client.pipeline(transaction=False)
        done.lpush("jobqueue:completed", payload).lrem(processing, 1, payload).delete(heartbeat)
        await done.execute()


async def main() -> None:
    """Until it is ended."""
    port, slots = map(int, sys.argv[1:])
    await asyncio.gather(*(_slot(port, number) for number in range(slots)))


if __name__ == "__main__":
    uvloop.run(main())
