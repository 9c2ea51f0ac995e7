"""Connections of redis-py that obey a cancellation, and that leave a server which is no master any more.

redis-py bounds a write by `asyncio.wait_for`, which before Python 3.12 returns the result of a finished write to a task
that was cancelled at that moment (cpython#86296): the cancellation is lost, and the task waits for a reply that it was
told not to want. Every task of ours that is stopped while it talks to Redis depends on this.

After a failover the address leads to another server, but a connection that is open stays with the old one, which
refuses every write for as long as it is a replica. So the connection is dropped with the first such refusal, and the
next command finds the new master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import redis
import redis.asyncio as redis_asyncio
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError


def _was_demoted(error: ResponseError) -> bool:
    return isinstance(error, ReadOnlyError | MasterDownError) or str(error).startswith("UNBLOCKED")


class _Cancellable(redis_asyncio.Connection):
    def __init__(self, *, write_timeout: float, **options: Any) -> None:
        """`write_timeout`: seconds that a write may take; `options` are those of redis-py."""
        super().__init__(**options)
        self._write_timeout = write_timeout

    async def send_packed_command(self, command: str | bytes | Iterable[bytes], check_health: bool = True) -> None:
        """Writes within the write timeout; a connection whose write was cut off is dropped."""
        limit, self.socket_timeout = self.socket_timeout, None
        try:
            async with asyncio.timeout(self._write_timeout):
                await super().send_packed_command(command, check_health)
        except TimeoutError:
            await self.disconnect(nowait=True)
            raise RedisTimeoutError("Timeout writing to socket") from None
        finally:
            self.socket_timeout = limit

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """One reply. The refusal of a server that is no master ends the connection."""
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if _was_demoted(error):
                await self.disconnect(nowait=True)
            raise


class PlainConnection(_Cancellable):
    """Over TCP."""


class TlsConnection(_Cancellable, redis_asyncio.SSLConnection):
    """Over TLS."""


class ThreadConnection(redis.Connection):
    """For a thread, over TCP."""

    def read_response(self, *args: Any, **options: Any) -> Any:
        """One reply. The refusal of a server that is no master ends the connection."""
        try:
            return super().read_response(*args, **options)
        except ResponseError as error:
            if _was_demoted(error):
                self.disconnect()  # type: ignore[no-untyped-call]  # untyped there
            raise


class ThreadTlsConnection(ThreadConnection, redis.SSLConnection):
    """For a thread, over TLS."""
