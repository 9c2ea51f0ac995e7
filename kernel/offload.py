"""Where work that takes longer than a moment is done: beside the event loop, one piece after the other.

One thread, because the work is bound by the interpreter's lock and more threads would only contend for it.
"""

import asyncio
from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_INLINE = 100


def is_long(resources: Sized) -> bool:
    """Whether a manifest is checked, and its tasks are built, beside the event loop."""
    return len(resources) > _INLINE


class Offload:
    """A thread that is there when it is needed; a duty of the service."""

    name = "offload"

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offload")

    async def run(self, heavy: bool, work: Callable[[], T]) -> T:
        """Does the work here, or beside the loop when it is heavy."""
        if not heavy:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def start(self) -> None:
        """Nothing to begin: the thread comes with its first work."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: those whose work it is wait for it."""

    async def stop(self) -> None:
        """Lets go of the thread; safe twice."""
        self._thread.shutdown(wait=False, cancel_futures=True)
