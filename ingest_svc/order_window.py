"""The orders of a stream that are in progress: so many, and of so many bytes, that a fast client fills no memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from fetchbox.task.v1.task_service_pb2 import CreateJobStreamRequest
from kernel.tasks import ended

MOST: Final = 256
MOST_BYTES: Final = 4 << 20
T = TypeVar("T")


class OrderWindow(Generic[T]):
    """Reads orders, begins each, and gives what they came to with their numbers, in their order.

    An async context manager: on leaving it reads no more. What is begun goes on.
    """

    def __init__(
        self,
        orders: AsyncIterator[CreateJobStreamRequest],
        begin: Callable[[CreateJobStreamRequest], asyncio.Future[T]],
    ) -> None:
        self._orders = orders
        self._begin = begin
        self._begun: asyncio.Queue[tuple[int, int, asyncio.Future[T]] | None] = asyncio.Queue()
        self._count = self._bytes = 0
        self._room = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read(), name="order-window")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        reader, self._reader = self._reader, None
        await ended(reader)

    async def __aiter__(self) -> AsyncIterator[tuple[int, T]]:
        """Raises what ended the reading, once all that was read before is answered."""
        while (one := await self._begun.get()) is not None:
            number, size, future = one
            outcome = await future
            self._count -= 1
            self._bytes -= size
            self._room.set()
            yield number, outcome
        if self._reader is not None:
            await self._reader

    async def _read(self) -> None:
        try:
            async for order in self._orders:
                size = order.ByteSize()
                while self._count == MOST or (self._count and self._bytes + size > MOST_BYTES):
                    self._room.clear()
                    await self._room.wait()
                self._count += 1
                self._bytes += size
                self._begun.put_nowait((order.number, size, self._begin(order)))
        finally:
            self._begun.put_nowait(None)
