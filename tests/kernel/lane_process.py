"""A worker process for the tests that kill it: claims, prints each claim, and settles or holds or dies.

usage: python lane_process.py ADDR WORKER TTL_SECONDS hold|settle|poison|spin [JOB of the poison]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from lane_rig import Rig, settings

from kernel.queue.streams.stream import Success
from kernel.redis.clients import RedisClients


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _run(addr: str, worker: str, ttl: float, mode: str, poison: str) -> None:
    config = settings(addr, ttl=ttl)
    box = Rig(config, await RedisClients.open(config.redis))
    lane = await box.lane(worker)
    _say("ready")
    while True:
        claims = await lane.claim(16, 0.2)
        for claim in claims:
            _say(f"claimed {claim.task.job_id} {claim.task.resource_id} {claim.crashes}")
        if mode == "poison" and any(claim.task.job_id == poison for claim in claims):
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "spin" and claims:
            ends = time.monotonic() + 3 * ttl
            while time.monotonic() < ends:
                pass
        if mode != "hold":
            settled = await box.settle(lane, claims, Success())
            for claim, one in zip(claims, settled, strict=True):
                _say(f"settled {claim.task.resource_id} {one.outcome}")


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], (*sys.argv, "")[5]))
