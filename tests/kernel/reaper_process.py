"""Processes for the tests that kill them.

usage: python reaper_process.py ADDR TTL_MS reap            passes in a tight loop, a line with the count after each
       python reaper_process.py ADDR TTL_MS hold WORKER N   takes N jobs as a worker of ours, and beats
       python reaper_process.py ADDR TTL_MS bare WORKER     seed 002 word for word: takes a job, then sets its heartbeat
"""

from __future__ import annotations

import asyncio
import sys

from reaper_rig import HIGH, LOW, Fleet, settings

from kernel.redis.clients import RedisClients


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _reap(fleet: Fleet) -> None:
    reaper = fleet.reaper()
    _say("reaps")
    while True:
        _say(await reaper.run())


async def _hold(fleet: Fleet, worker: str, count: int) -> None:
    await fleet.beat(worker)
    pipe = fleet.redis.pipeline(transaction=False)
    for number in range(count):
        pipe.lmove(HIGH if number % 2 else LOW, fleet.names.processing(worker), "RIGHT", "LEFT")
    await pipe.execute()
    _say("holds")
    while True:
        await asyncio.sleep(fleet.ttl_ms / 3000)
        await fleet.beat(worker)


async def _bare(fleet: Fleet, worker: str) -> None:
    job = await fleet.redis.brpoplpush(LOW, fleet.names.processing(worker), 5)
    _say("took")
    await asyncio.to_thread(sys.stdin.readline)  # the window of seed 002, as long as the test wants it
    await fleet.redis.set(fleet.names.heartbeat(worker), job, px=fleet.ttl_ms)
    _say("beats")
    await asyncio.to_thread(sys.stdin.readline)


async def _run(addr: str, ttl_ms: int, mode: str, *rest: str) -> None:
    config = settings(addr, ttl_ms=ttl_ms)
    fleet = Fleet(config, await RedisClients.open(config.redis))
    if mode == "reap":
        await _reap(fleet)
    elif mode == "hold":
        await _hold(fleet, rest[0], int(rest[1]))
    else:
        await _bare(fleet, rest[0])


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
