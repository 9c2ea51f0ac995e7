"""A lean connection to Redis that sends whole batches of commands (ADR 0004).

The worker's hot path writes some five commands a task. A general client spends more time on each command than Redis
does; here a batch is packed in one go, written once, and its replies are handed back together, in order. Errors of
single commands are values (`hiredis.ReplyError`) in the list of replies; a lost connection fails every batch that
has no complete answer with `PipeLost`, and the owner repeats it on a new one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import hiredis

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1 import errors_pb2
from kernel.durations import seconds
from kernel.errors import FetchboxError, unavailable

Command = tuple[Any, ...] | bytes
"""Strings, bytes, integers and floats; or all of it, packed already."""


class PipeLost(FetchboxError):  # noqa: N818  # a state of the pipe, not a fault of the caller
    """`UNAVAILABLE`: the connection is gone; what was asked may or may not have happened."""

    def __init__(self, message: str) -> None:
        super().__init__(errors_pb2.REASON_UNAVAILABLE, message)


@dataclass(frozen=True, slots=True)
class RedisEndpoint:
    """Where Redis is and who we are there."""

    host: str
    port: int
    db: int
    username: str
    password: str
    dial_timeout: float
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, config: config_pb2.Redis) -> RedisEndpoint:
        """The endpoint of a configuration."""
        host, _, port = config.addr.rpartition(":")
        context = ssl.create_default_context(cafile=config.tls_ca_file or None) if config.tls else None
        return cls(
            host.strip("[]"),
            int(port),
            config.db,
            config.username,
            config.password,
            seconds(config.dial_timeout),
            context,
        )

    def greeting(self, name: str) -> list[Command]:
        """The commands that open a connection."""
        commands: list[Command] = []
        if self.password:
            commands.append(("AUTH", self.username or "default", self.password))
        if self.db:
            commands.append(("SELECT", self.db))
        commands.append(("CLIENT", "SETNAME", name))
        return commands


class _Batch:
    """Commands that were sent together and whose replies are still coming."""

    __slots__ = ("count", "deadline", "future", "replies")

    def __init__(self, count: int, future: asyncio.Future[list[Any]], deadline: float) -> None:
        self.count = count
        self.future = future
        self.deadline = deadline
        self.replies: list[Any] = []


class Pipe(asyncio.Protocol):
    """One connection. Made by `connect`; dead for good once `lost`."""

    def __init__(self, name: str, patience: float) -> None:
        self.name = name
        self.lost = False
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=hiredis.ProtocolError, replyError=hiredis.ReplyError)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Batch] = deque()
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(cls, end: RedisEndpoint, name: str, patience: float) -> Pipe:
        """A connection that has greeted; raises `UNAVAILABLE`."""
        loop = asyncio.get_running_loop()
        pipe = cls(name, patience)
        try:
            async with asyncio.timeout(end.dial_timeout):
                await loop.create_connection(lambda: pipe, end.host, end.port, ssl=end.tls)
                replies = await pipe.run(end.greeting(name))
        except (OSError, TimeoutError) as error:
            pipe.close()
            raise unavailable(f"Redis at {end.host}:{end.port} does not answer: {error}") from error
        except BaseException:
            pipe.close()
            raise
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                pipe.close()
                raise unavailable(f"Redis at {end.host}:{end.port} refuses the connection: {reply}")
        return pipe

    def run(self, commands: Sequence[Command], patience: float | None = None) -> asyncio.Future[list[Any]]:
        """Sends the commands; the future holds one reply each, or `PipeLost`. `patience`: seconds of silence."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self.lost or self._transport is None:
            future.set_exception(PipeLost(f"the connection {self.name} is gone"))
            return future
        pack = hiredis.pack_command
        self._waiting.append(_Batch(len(commands), future, self._loop.time() + (patience or self._patience)))
        self._transport.write(b"".join([c if isinstance(c, bytes) else pack(c) for c in commands]))
        if self._watch is None:
            self._watch = self._loop.call_at(self._waiting[0].deadline, self._check)
        return future

    def close(self) -> None:
        """Drops the connection. Safe twice."""
        self._fail(PipeLost(f"the connection {self.name} was closed"))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        gets, waiting = self._reader.gets, self._waiting
        self._reader.feed(data)
        try:
            while (reply := gets()) is not False:
                batch = waiting[0]
                replies = batch.replies
                replies.append(reply)
                if len(replies) == batch.count:
                    waiting.popleft()
                    if not batch.future.done():
                        batch.future.set_result(replies)
        except (hiredis.ProtocolError, IndexError) as error:
            self._fail(PipeLost(f"the connection {self.name} broke the protocol: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._fail(PipeLost(f"the connection {self.name} was lost: {exc or 'closed by the server'}"))

    def _check(self) -> None:
        """Drops a connection whose oldest batch has waited too long: a silent peer never says that it is gone."""
        self._watch = None
        if not self._waiting:
            return
        deadline = self._waiting[0].deadline
        if deadline <= self._loop.time():
            self._fail(PipeLost(f"the connection {self.name} has been silent for too long"))
        else:
            self._watch = self._loop.call_at(deadline, self._check)

    def _fail(self, error: PipeLost) -> None:
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        waiting, self._waiting = self._waiting, deque()
        for batch in waiting:
            if not batch.future.done():
                batch.future.set_exception(error)
