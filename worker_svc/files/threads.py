"""Threads for calls of the file system, which may block for as long as a disk or a network likes.

The threads are daemons: a call that never returns keeps no process from its end. There are as many as there are slots,
and each slot has one call at a time, so a call waits only where others are stuck.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """At most `count` threads, started when they are needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = 0
        self._busy = 0  # known to the loop alone

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises in a thread. Canceled, the thread goes on and nobody waits for it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            value: Any = None
            problem: BaseException | None = None
            try:
                value = call()
            except BaseException as error:  # noqa: BLE001 - it is raised again where the call is waited for
                problem = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._tell, done, value, problem)

        self._put(work)
        return await done

    def post(self, call: Callable[[], None]) -> None:
        """Has `call`, which raises nothing, done by a thread; nobody waits for it."""

        def work() -> None:
            call()
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._done)

        loop = asyncio.get_running_loop()
        self._put(work)

    def _done(self) -> None:
        self._busy -= 1

    def _put(self, work: Callable[[], None]) -> None:
        self._busy += 1
        if self._busy > self._started and self._started < self._count:
            self._started += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True).start()
        self._calls.put(work)

    def _tell(self, done: asyncio.Future[Any], value: Any, problem: BaseException | None) -> None:
        self._busy -= 1
        if done.done():
            return
        if problem is None:
            done.set_result(value)
        else:
            done.set_exception(problem)

    def _serve(self) -> None:
        while (work := self._calls.get()) is not None:
            work()

    def close(self) -> None:
        """Lets every thread end after the calls that wait; safe twice."""
        for _ in range(self._started):
            self._calls.put(None)
        self._started = 0
