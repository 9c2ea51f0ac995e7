"""Says that a stream has begun though it has nothing to tell yet, so that nobody waits for a first message to know."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc

T = TypeVar("T")
BEGUN = "fetchbox-begun"
"""The metadata of the answer; the gateway reads it."""


class Beginning:
    """How the stream of one call begins: with its first message, or with being told."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self._is_over = False

    async def tell(self) -> None:
        """Sends the metadata of the answer now, unless that has gone with a message; no status of HTTP can follow."""
        if not self._is_over:
            self._is_over = True
            await self._context.send_initial_metadata(((BEGUN, "1"),))

    async def noted(self, messages: AsyncIterator[T]) -> AsyncIterator[T]:
        """The messages as they are."""
        async for message in messages:
            self._is_over = True
            yield message
