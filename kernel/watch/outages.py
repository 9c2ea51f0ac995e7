"""Reads of watchers that have begun: while Redis is away they wait for it, as a feed does for what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError

T = TypeVar("T")
_PAUSE: Final = 0.5
"""Seconds until the next attempt."""


async def through_outages(read: Callable[[], Awaitable[T]]) -> T:
    """What `read` comes to, called again as long as it raises `UNAVAILABLE`."""
    while True:
        try:
            return await read()
        except FetchboxError as error:
            if error.reason != errors_pb2.REASON_UNAVAILABLE:
                raise
        await asyncio.sleep(_PAUSE)
