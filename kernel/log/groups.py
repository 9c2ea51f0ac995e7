"""Consumer groups of a topic: the position is stored in Redis, delivery is at-least-once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message
from redis.exceptions import ResponseError

from kernel.log.messages import Received, received
from kernel.log.offsets import START
from kernel.redis import keys
from kernel.redis.clients import BLOCK_LIMIT, RedisClients
from kernel.redis.scripts import PROVISION
from kernel.telemetry.logs import get_logger

M = TypeVar("M", bound=Message)

_TAKE_OVER_IDLE_MS: Final = 60_000
_TAKE_OVER_SECONDS: Final = 15.0
_FORGET_IDLE_MS: Final = 24 * 3_600_000

_log = get_logger("log")


class Group(Generic[M]):
    """One consumer of a group, over all partitions of a topic. For one task at a time.

    What a batch has not acknowledged when the next one is read comes again in it, so a consumer that failed in the
    middle just reads on. What a consumer that died has not acknowledged comes to another after a minute.
    """

    def __init__(
        self,
        clients: RedisClients,
        topic: str,
        kind: type[M],
        streams: Sequence[str],
        name: str,
        consumer: str,
    ) -> None:
        self._clients = clients
        self._topic = topic
        self._kind = kind
        self._partitions = {stream: partition for partition, stream in enumerate(streams)}
        self._name = name
        self._consumer = consumer
        # What Redis counts as ours and the caller has not acknowledged: unknown at first, and after a lost reply.
        self._open: set[tuple[int, str]] = set()
        self._certain = False
        self._took_over = 0.0
        self._looked_up_to: dict[str, str | bytes] = dict.fromkeys(streams, START)

    async def read(self, limit: int = 100, wait: float = 1.0) -> list[Received[M]]:
        """Own unacknowledged messages first, else those of dead consumers, else new ones.

        Returns about `limit` messages, in order within each partition; waits up to `wait` seconds (30 at most) for new
        ones. A group or stream that was lost is made again from its beginning; that read returns nothing.
        """
        each = max(1, limit // len(self._partitions))
        try:
            return (
                await self._own(each)
                or await self._taken_over(each)
                or await self._read(self._clients.blocking, each, ">", block_ms=int(min(wait, BLOCK_LIMIT) * 1000))
            )
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            await self._recreate()
            return []

    async def ack(self, done: Iterable[Received[M]]) -> None:
        """Marks messages as done: they are not delivered again. Repeating it does nothing."""
        by_partition: dict[int, list[str]] = {}
        for item in done:
            by_partition.setdefault(item.partition, []).append(item.id)
        await self._ack(by_partition)

    async def _ack(self, by_partition: Mapping[int, Sequence[str]]) -> None:
        if not by_partition:
            return
        pipe = self._clients.commands.pipeline(transaction=False)
        for stream, partition in self._partitions.items():
            if ids := by_partition.get(partition):
                pipe.execute_command("XACK", stream, self._name, *ids)
        await pipe.execute()
        for partition, ids in by_partition.items():
            self._open.difference_update((partition, entry) for entry in ids)

    async def _own(self, each: int) -> list[Received[M]]:
        if self._certain and not self._open:
            return []
        found = await self._read(self._clients.commands, each, START)
        if not found:
            self._open.clear()
            self._certain = True
        return found

    async def _read(self, client: Any, each: int, after: str, block_ms: int | None = None) -> list[Received[M]]:
        block = () if block_ms is None else ("BLOCK", max(1, block_ms))
        where = ("STREAMS", *self._partitions, *[after] * len(self._partitions))
        certain, self._certain = self._certain, False
        reply = await client.execute_command(
            "XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", each, *block, *where
        )
        self._certain = certain
        rows = reply.items() if isinstance(reply, dict) else reply or ()
        return await self._messages({stream.decode(): entries for stream, entries in rows})

    async def _messages(self, by_stream: Mapping[str, Sequence[Any]]) -> list[Received[M]]:
        """The messages in a reply. Undecodable entries, and those that retention has removed, are acknowledged here."""
        found: list[Received[M]] = []
        void: dict[int, list[str]] = {}
        for stream, entries in by_stream.items():
            partition = self._partitions[stream]
            for entry, fields in entries:
                item = self._message(partition, entry.decode(), fields)
                if item is None:
                    void.setdefault(partition, []).append(entry.decode())
                else:
                    found.append(item)
        await self._ack(void)
        self._open.update((item.partition, item.id) for item in found)
        return found

    def _message(self, partition: int, entry: str, fields: Mapping[bytes, bytes] | None) -> Received[M] | None:
        if not fields:
            return None
        named = {name.decode(errors="replace"): value for name, value in fields.items()}
        return received(self._topic, self._kind, partition, entry, named)

    async def _taken_over(self, each: int) -> list[Received[M]]:
        """Messages of consumers that have been silent for a minute; looked for every 15 s.

        One look ends after ten times as many entries as are wanted, so the next one goes on behind it: what the dead
        have left may lie behind more than that of the living.
        """
        if time.monotonic() - self._took_over < _TAKE_OVER_SECONDS:
            return []
        self._took_over = time.monotonic()
        found: dict[str, Sequence[Any]] = {}
        for stream in self._partitions:
            reply = await self._clients.commands.execute_command(
                "XAUTOCLAIM",
                stream,
                self._name,
                self._consumer,
                _TAKE_OVER_IDLE_MS,
                self._looked_up_to[stream],
                "COUNT",
                each,
            )
            self._looked_up_to[stream] = reply[0]
            found[stream] = reply[1]
            await self._forget_consumers(stream)
        return await self._messages(found)

    async def _forget_consumers(self, stream: str) -> None:
        """Removes consumers that have nothing and have been silent for a day: processes come and go."""
        for facts in await self._clients.commands.xinfo_consumers(stream, self._name):
            if facts["pending"] == 0 and facts["idle"] > _FORGET_IDLE_MS:
                await self._clients.commands.execute_command("XGROUP DELCONSUMER", stream, self._name, facts["name"])

    async def _recreate(self) -> None:
        _log.warn("group_recreated", topic=self._topic, group=self._name)
        self._open.clear()
        self._certain = False
        for stream in self._partitions:
            await create_group(self._clients, stream, self._name)
        # Every consumer of the fleet meets the loss at the same time.
        await asyncio.sleep(random.uniform(0.05, 0.2))  # noqa: S311  # spreads callers, hides nothing


async def create_group(clients: RedisClients, stream: str, name: str) -> None:
    """Creates a group that reads the stream from its beginning, and the stream; an existing group is left alone.

    One that was lost goes on behind what retention knows it to have acknowledged.
    """
    await clients.call(PROVISION, [stream, keys.cursors(stream)], [name])
