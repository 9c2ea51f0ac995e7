"""A pipelining connection that comes back: it reconnects, loads its scripts, and tells state from fault.

Whatever runs through a link may be repeated, so a lost connection, a failover or a server that is loading are one
and the same to its owner: `PipeLost`, try again. Fault replies are handed back as values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import hiredis

from kernel.redis.clients import Arg, RedisClients, is_transient
from kernel.redis.pipe import Command, Pipe, PipeLost
from kernel.redis.scripts import Script

_PAUSES = (0.02, 0.1, 0.5, 1.0, 2.0)
"""Seconds between tries to connect; the last one stays."""


def command(script: Script, keys: Sequence[str], args: Sequence[Arg]) -> Command:
    """The script as a command of a batch."""
    return ("EVALSHA", script.sha, len(keys), *keys, *args)


class Link:
    """One connection of a lane, and the ones that follow it."""

    def __init__(self, clients: RedisClients, name: str, scripts: Sequence[Script], patience: float) -> None:
        self.connects = 0
        """How often a connection was made; a change means that replies may have been lost."""
        self._clients = clients
        self._name = name
        self._scripts = scripts
        self._patience = patience
        self._pipe: Pipe | None = None
        self._connecting = asyncio.Lock()
        self._tries = 0

    async def run(self, commands: Sequence[Command], patience: float | None = None) -> list[Any]:
        """One reply for each command. Raises `PipeLost` where the batch is to be tried again, after a pause."""
        pipe = self._pipe
        if pipe is None or pipe.lost:
            pipe = await self._connected()
        replies = await pipe.run(commands, patience)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                return await self._examined(pipe, commands, replies)
        return replies

    def close(self) -> None:
        """Drops the connection; the next run makes another."""
        if self._pipe is not None:
            self._pipe.close()

    async def _connected(self) -> Pipe:
        async with self._connecting:
            if self._pipe is not None and not self._pipe.lost:
                return self._pipe
            if self._tries:
                await asyncio.sleep(_PAUSES[min(self._tries, len(_PAUSES)) - 1])
            self._tries += 1
            try:
                pipe = await self._clients.pipe(self._name, self._patience)
            except Exception as error:
                raise PipeLost(str(error)) from error
            try:
                await self._load(pipe)
            except BaseException as error:
                pipe.close()
                if isinstance(error, Exception):
                    raise PipeLost(str(error)) from error
                raise
            self._tries = 0
            self.connects += 1
            self._pipe = pipe
            return pipe

    async def _load(self, pipe: Pipe) -> None:
        if self._scripts:
            await pipe.run([("SCRIPT", "LOAD", script.source) for script in self._scripts])

    async def _examined(self, pipe: Pipe, commands: Sequence[Command], replies: list[Any]) -> list[Any]:
        """The replies after those commands were repeated whose script the server had forgotten."""
        forgotten = [i for i, reply in enumerate(replies) if _says(reply, "NOSCRIPT")]
        if forgotten:
            await self._load(pipe)
            again = await pipe.run([commands[i] for i in forgotten])
            for i, reply in zip(forgotten, again, strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError) and (is_transient(str(reply)) or _says(reply, "NOSCRIPT")):
                pipe.close()
                self._tries = max(self._tries, 2)
                raise PipeLost(str(reply))
        return replies


def _says(reply: object, word: str) -> bool:
    return isinstance(reply, hiredis.ReplyError) and word in str(reply)


def is_error(reply: object) -> bool:
    """Whether a reply is a fault that trying again will not cure."""
    return isinstance(reply, hiredis.ReplyError)


def lacks_group(reply: object) -> bool:
    """Whether the stream or its group is not there (any more)."""
    return isinstance(reply, hiredis.ReplyError) and ("NOGROUP" in str(reply) or "no such key" in str(reply))
