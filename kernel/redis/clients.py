"""The connections of a process to Redis, and the one place where Redis errors become ours.

Two pools: commands with the configured timeout, and blocking reads whose socket may stay silent for as long as they
block. Writes are never retried inside the client, since a repeated XADD is a doubled entry; reads are, and scripts
are, since each of them tells what an earlier run has done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis
import redis.asyncio as redis_asyncio
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry as SyncRetry

from fetchbox.config.v1 import config_pb2
from kernel.durations import seconds
from kernel.errors import FetchboxError, unavailable
from kernel.redis.connection import PlainConnection, ThreadConnection, ThreadTlsConnection, TlsConnection
from kernel.redis.keys import PROBE
from kernel.redis.pipe import Pipe, RedisEndpoint
from kernel.redis.scripts import Script

BLOCK_LIMIT = 30.0
"""The longest block that the blocking pool is made for, in seconds."""
BLOCK_MARGIN = 5.0
"""Silence beyond a command's own block after which its connection counts as dead, in seconds."""
_NOT_NOW = (
    *("READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "BUSY ", "OOM", "UNBLOCKED"),
    "MISCONF",  # the disk is full, or fails
)
_STATES = (BusyLoadingError, ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
"""The same as exceptions: redis-py takes the word from the text of those that it knows."""
_RETRY_PAUSE = 0.05
_PROBE_LIFE_MS = 60_000

_READS = frozenset(
    {
        "CONFIG GET", "EXISTS", "GET", "GETBIT", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "INFO",
        "LINDEX", "LLEN", "LRANGE", "MEMORY USAGE", "PING", "PTTL", "TIME", "TTL", "XINFO CONSUMERS", "XINFO GROUPS",
        "XINFO STREAM", "XLEN", "XPENDING", "XRANGE", "XREVRANGE", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE",
        "ZREVRANGE", "ZREVRANGEBYSCORE", "ZSCORE",
    }
)  # fmt: skip
"""Commands that change nothing, so that a lost reply may be asked for again."""


def _is_read(name: str | bytes) -> bool:
    """Whether a command changes nothing. A name in bytes says that the reply is wanted as it came, not as redis-py."""
    return (name if isinstance(name, str) else name.decode()) in _READS


Arg = str | bytes | int | float

Refused = ResponseError
"""What a command raises that Redis refuses."""


def is_transient(message: str) -> bool:
    """Whether an error reply speaks of the server's state (failover, loading, memory) and not of the command."""
    return message.startswith(_NOT_NOW)


def is_other_kind(error: Exception) -> bool:
    """Whether a command was refused since its key holds a value of another kind, which somebody else has put there."""
    return "WRONGTYPE" in str(error)


def _translated(error: Exception, address: str) -> Exception:
    """The error as callers see it: `UNAVAILABLE` for what may pass, itself for a fault of ours."""
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
        return unavailable(f"Redis at {address} does not answer: {error}")
    if isinstance(error, _STATES) or (isinstance(error, ResponseError) and is_transient(str(error))):
        return unavailable(f"Redis at {address} cannot serve this now: {error}")
    return error


async def _repeated(run: Callable[[], Awaitable[Any]], address: str, retries: int) -> Any:
    """Runs once, and again up to `retries` times while the error is one that may pass; errors are ours."""
    for left in range(retries, -1, -1):
        try:
            return await run()
        except (RedisError, OSError) as error:
            translated = _translated(error, address)
            if left == 0 or not isinstance(translated, FetchboxError):
                raise translated from error
        await asyncio.sleep(_RETRY_PAUSE * (retries - left + 1))
    raise AssertionError("unreachable")  # pragma: no cover


def _patience(args: Sequence[Any]) -> float | None:
    """Seconds after which a read that blocks counts as lost; None where the timeout of the socket says enough."""
    if args[0] not in {"XREAD", "XREADGROUP"} or "BLOCK" not in args:
        return None
    return float(args[args.index("BLOCK") + 1]) / 1000 + BLOCK_MARGIN


class _Pipeline(Pipeline):
    """A pipeline whose errors are ours; one that only reads is repeated."""

    address = ""
    retries = 0

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands = list(self.command_stack)
        reads = all(_is_read(arguments[0]) for arguments, _ in commands)

        async def run() -> list[Any]:
            self.command_stack = list(commands)
            return await super(_Pipeline, self).execute(raise_on_error)

        found: list[Any] = await _repeated(run, self.address, self.retries if reads else 0)
        return found


class RedisClient(redis_asyncio.Redis):
    """A client whose errors are ours; reads are repeated, as a pooled connection may be stale."""

    address = ""
    retries = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Runs one command; replies are bytes. Raises `UNAVAILABLE` for what may pass."""

        async def run() -> Any:
            async with asyncio.timeout(_patience(args)):
                return await super(RedisClient, self).execute_command(*args, **options)  # type: ignore[no-untyped-call]  # untyped there

        return await _repeated(run, self.address, self.retries if _is_read(args[0]) else 0)

    async def initialize(self) -> RedisClient:
        """Connects a client that keeps one connection. Raises `UNAVAILABLE` for what may pass."""

        async def run() -> RedisClient:
            return await super(RedisClient, self).initialize()

        made: RedisClient = await _repeated(run, self.address, 0)
        return made

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline on a connection of the pool."""
        made = _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.address, made.retries = self.address, self.retries
        return made


class RedisClients:
    """The pools of one process. Open once, share everywhere, close last."""

    def __init__(self, config: config_pb2.Redis) -> None:
        self._config = config
        self.address = config.addr
        read = seconds(config.read_timeout)
        per_pool = max(1, config.pool_size_multiplier) * (os.cpu_count() or 1)
        self.commands = self._client(read, per_pool)
        self.commands.retries = config.max_retries
        self.blocking = self._client(BLOCK_LIMIT + BLOCK_MARGIN, per_pool)

    @classmethod
    async def open(cls, config: config_pb2.Redis) -> RedisClients:
        """Connects; raises `UNAVAILABLE` where Redis does not answer."""
        clients = cls(config)
        try:
            # The first one alone, so that a server that is away is told once.
            await clients.ping()
            idle = min(config.min_idle_conns, clients.commands.connection_pool.max_connections)
            await asyncio.gather(*(clients.ping() for _ in range(idle)))
        except FetchboxError:
            await clients.close()
            raise
        return clients

    async def close(self) -> None:
        """Closes every connection of the pools. Safe twice."""
        await self.commands.aclose(close_connection_pool=True)
        await self.blocking.aclose(close_connection_pool=True)

    async def ping(self) -> None:
        """Raises `UNAVAILABLE` where Redis does not answer."""
        await self.commands.execute_command("PING")

    async def probe(self) -> None:
        """Raises `UNAVAILABLE` where Redis takes no write: it is away, a replica, or short of memory or disk."""
        await self.commands.execute_command("SET", PROBE, "1", "PX", _PROBE_LIFE_MS)

    async def call(self, script: Script, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        """Runs a script. A lost reply or a failover is retried: every script may be repeated."""
        for left in range(self._config.max_retries, -1, -1):
            try:
                return await self._evaluate(script, keys, args)
            except FetchboxError:
                if left == 0:
                    raise
                await asyncio.sleep(_RETRY_PAUSE * (self._config.max_retries - left + 1))
        raise AssertionError("unreachable")  # pragma: no cover

    async def _evaluate(self, script: Script, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        try:
            return await self.commands.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self.commands.execute_command("EVAL", script.source, len(keys), *keys, *args)

    async def now_ms(self) -> int:
        """The time of Redis, in ms since the epoch."""
        second, micro = await self.commands.execute_command("TIME")
        return int(second) * 1000 + int(micro) // 1000

    async def durability_problems(self) -> list[str]:
        """What of the server's configuration may lose accepted work, for people; empty where nothing does."""
        wanted = {"appendonly": "yes", "maxmemory-policy": "noeviction"}
        found = await self._settings([*wanted, "appendfsync"])
        if found is None:
            return ["CONFIG GET is not permitted, so the durability of Redis cannot be checked"]
        problems = [
            f"{key} is `{found.get(key)}`, not `{want}`" for key, want in wanted.items() if found.get(key) != want
        ]
        if found.get("appendfsync") != "always":
            problems.append(
                f"appendfsync is `{found.get('appendfsync')}`: a crash of the server may lose the last second; "
                "`always` loses nothing"
            )
        return problems

    async def evicts(self) -> bool:
        """Whether the server drops keys when its memory is full; False where it does not say."""
        found = await self._settings(["maxmemory", "maxmemory-policy"]) or {}
        return found.get("maxmemory", "0") != "0" and found.get("maxmemory-policy") != "noeviction"

    async def _settings(self, names: Sequence[str]) -> dict[str, str] | None:
        try:
            reply = await self.commands.execute_command("CONFIG GET", *names)
        except ResponseError:
            return None
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        return {_text(key): _text(value) for key, value in pairs}

    async def pipe(self, name: str, patience: float | None = None) -> Pipe:
        """A connection of its own for whole batches; `patience`: seconds of silence, the read timeout by default."""
        return await Pipe.connect(self.endpoint(), name, patience or seconds(self._config.read_timeout))

    def thread_client(self, patience: float) -> redis.Redis:
        """A client for a thread of its own, with one connection; its errors are those of redis-py."""
        end = self.endpoint()
        tls: dict[str, Any] = {"ssl_ca_certs": self._config.tls_ca_file or None} if self._config.tls else {}
        pool: redis.ConnectionPool = redis.ConnectionPool(
            connection_class=ThreadTlsConnection if self._config.tls else ThreadConnection,
            host=end.host,
            port=end.port,
            db=end.db,
            username=end.username or None,
            password=end.password or None,
            socket_timeout=patience,
            socket_connect_timeout=min(patience, end.dial_timeout),
            max_connections=1,
            retry=SyncRetry(NoBackoff(), 0),
            **tls,
        )
        return redis.Redis.from_pool(pool)

    def endpoint(self) -> RedisEndpoint:
        """Where and how to connect."""
        return RedisEndpoint.of(self._config)

    def _client(self, timeout: float, connections: int) -> RedisClient:
        end = self.endpoint()
        pool = redis_asyncio.BlockingConnectionPool(
            host=end.host,
            port=end.port,
            db=end.db,
            username=end.username or None,
            password=end.password or None,
            max_connections=connections,
            timeout=timeout,
            socket_timeout=timeout,
            write_timeout=seconds(self._config.write_timeout),
            socket_connect_timeout=end.dial_timeout,
            socket_keepalive=True,
            health_check_interval=15,
            retry=Retry(NoBackoff(), 0),
            **self._tls(),
        )
        client = RedisClient(connection_pool=pool)
        client.address = self.address
        return client

    def _tls(self) -> dict[str, Any]:
        if not self._config.tls:
            return {"connection_class": PlainConnection}
        return {"connection_class": TlsConnection, "ssl_ca_certs": self._config.tls_ca_file or None}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
