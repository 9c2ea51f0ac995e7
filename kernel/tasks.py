"""Ending tasks for good."""

import asyncio
from typing import Any

_AGAIN_SECONDS = 0.1


async def ended(task: "asyncio.Task[Any] | None") -> None:
    """Cancels a task and waits until it has ended, whatever its outcome; None is nothing to do.

    It is cancelled again for as long as it goes on: before Python 3.12 `asyncio.wait_for`, which libraries use, may
    lose a cancellation (cpython#86296), and the task would then go on as if nothing had been said.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_SECONDS)
    if task is not None and not task.cancelled():
        task.exception()
