"""The worker's slots and both of its lanes as they are, with work that does nothing.

python -m benchmarks.peers.lists.fetchbox PORT SLOTS SHARE
"""

from __future__ import annotations

import asyncio
import random
import sys

import uvloop

from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.durations import seconds
from kernel.garbage import collect_seldom
from kernel.log.topics import provision
from kernel.queue.files.lane import ListLane
from kernel.queue.lanes import Lanes
from kernel.queue.streams.worker import WorkerLane
from kernel.queue.work.types import Failure, Outcome, Success
from kernel.redis.clients import RedisClients
from worker_svc.deadlines import Deadlines
from worker_svc.retries import Retries
from worker_svc.runner import Runner, RunnerLimits
from worker_svc.slot import Slot
from worker_svc.steps import StepHandlers


async def _nothing(slot: Slot) -> Outcome:  # noqa: ARG001 - that is what it does with it
    return Success()


async def main() -> None:
    """Until it is ended."""
    port, slots, share = sys.argv[1:]
    config = defaults()
    config.redis.addr = f"127.0.0.1:{port}"
    config.worker.count = int(slots)
    config.worker.low_priority_share = float(share)
    clients, clock = await RedisClients.open(config.redis), SystemClock()
    await provision(clients, config)
    stream = WorkerLane(clients, config, "bench", clock, random.Random(1), lambda _: False, Retries(config))
    block = seconds(config.worker.block)
    runner = Runner(
        Lanes(stream, ListLane(clients, config, "bench", clock), clock, block),
        _nothing,
        RunnerLimits(config.worker.count, block),
        clock,
        deadline=Deadlines(config, StepHandlers(config)),
        late=lambda claim, deadline: Failure("HANDLER_DEADLINE", f"{claim.job_id}: {deadline} s"),
        final_due=lambda: None,
        drained=asyncio.Event(),
    )
    collect_seldom()
    await runner.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
