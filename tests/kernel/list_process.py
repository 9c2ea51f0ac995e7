"""A worker of file jobs for the tests that kill it: claims, prints each claim, and settles or holds or dies.

usage: python list_process.py ADDR WORKER TTL_SECONDS hold|settle|poison [ID of the poison]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from list_rig import ListRig, settings

from kernel.queue.work.types import Success
from kernel.redis.clients import RedisClients


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _run(addr: str, worker: str, ttl: float, mode: str, poison: str) -> None:
    config = settings(addr, ttl=ttl)
    box = ListRig(config, await RedisClients.open(config.redis))
    lane = await box.lane(worker)
    _say("ready")
    while True:
        claims = await lane.claim(8, 0.2)
        for claim in claims:
            _say(f"claimed {claim.job_id} {'alone' if claim.solo else 'among others'}")
        if mode == "poison" and any(claim.job_id == poison for claim in claims):
            os.kill(os.getpid(), signal.SIGKILL)
        if mode != "hold":
            for claim, one in zip(claims, await box.settle(lane, claims, Success()), strict=True):
                _say(f"settled {claim.job_id} {one}")


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], (*sys.argv, "")[5]))
