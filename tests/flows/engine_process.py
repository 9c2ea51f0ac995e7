"""An engine of flows as a process of its own, which kills or stops itself where it is told to.

usage: python -m tests.flows.engine_process CONFIG [MARK COUNT kill|stop]

MARK is a step of a turn: `claimed`, `appended`, `admitted`, `sent` or `rested`; it is the COUNTth time that counts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config
from flows.engine.duties import flow_duties
from flows.journal.redis_journal import RedisJournal
from flows.publishing.bus import internal_bus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.service.resources import Resources
from kernel.service.service import Service
from worker_svc.flows import Submitting


def _at(mark: str, count: int, how: str) -> Callable[[str], None]:
    left = [count]

    def reached(step: str) -> None:
        if step == mark:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    return reached


async def main(config: Config, reached: Callable[[str], None]) -> None:
    resources = await Resources.open(config)
    journal, submits = RedisJournal(resources.redis, config), Submitting(config)
    manager = EventManager(internal_bus(), config.flow_engine.max_event_bytes)
    duties = flow_duties(config, resources, journal, manager, submits, reached)
    service = Service("engine", [journal, StoreWiring(internal_bus(), journal), submits, *duties])
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await service.run_until_signal(5)
    finally:
        await resources.close()


if __name__ == "__main__":
    loaded = Config.FromString(Path(sys.argv[1]).read_bytes())
    mark, count, how = sys.argv[2:5] if len(sys.argv) > 2 else ("", "1", "kill")
    asyncio.run(main(loaded, _at(mark, int(count), how)))
