"""Waiting for Redis at the start of a role: a server that restarts, loads its data or flaps ends no start.

Each step of a start that talks to Redis waits by itself, so that it may go away between any two of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fetchbox.config.v1.config_pb2 import Redis
from fetchbox.errors.v1 import errors_pb2
from kernel.clock import Clock
from kernel.durations import seconds
from kernel.errors import FetchboxError
from kernel.telemetry.logs import get_logger

T = TypeVar("T")
_PAUSE: Final = 0.1
log = get_logger("start")


async def patiently(work: Callable[[], Awaitable[T]], config: Redis, clock: Clock | None = None) -> T:
    """Does the work, again for as long as `redis.start_patience` while Redis does not answer.

    `work` may be repeated. Raises what it raises last.
    """
    now = clock.monotonic if clock else asyncio.get_running_loop().time
    sleep = clock.sleep if clock else asyncio.sleep
    deadline = now() + seconds(config.start_patience)
    told = False
    while True:
        try:
            return await work()
        except FetchboxError as error:
            if error.reason != errors_pb2.REASON_UNAVAILABLE or now() >= deadline:
                raise
            if not told:
                log.warn("waiting_for_redis", addr=config.addr, error=str(error))
            told = True
        await sleep(_PAUSE)
