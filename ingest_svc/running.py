"""Submits that run: a client that goes away does not stop its own halfway, or the next would wait for its lease."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Running:
    """Runs submits to their end; a duty: a drain waits for those whose clients have gone."""

    name = "submits"

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of the work, which goes on where its caller is cancelled."""
        return await self.begin(work)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Begins the work; what it comes to."""
        task = asyncio.create_task(work)
        self._running.add(task)
        waiter: asyncio.Future[T] = task.get_loop().create_future()
        task.add_done_callback(partial(self._ended, waiter))
        return waiter

    async def start(self) -> None:
        """Nothing to begin."""

    async def drain(self, grace: float) -> None:
        """Waits for the submits whose clients have gone."""
        if self._running:
            await asyncio.wait(self._running, timeout=grace)

    async def stop(self) -> None:
        """Cancels what still runs: the sweep finishes it."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, waiter: asyncio.Future[T], task: asyncio.Task[T]) -> None:
        """Passes the outcome to the waiter, if there still is one; that there is none is not logged as a fault."""
        self._running.discard(task)
        if task.cancelled():
            waiter.cancel()
            return
        error = task.exception()
        if waiter.done():
            return
        if error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(task.result())
