"""How much lies in each partition, and how much of it is still to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fetchbox.config.v1 import config_pb2
from kernel import keys
from kernel.log.offsets import START, parse_id
from kernel.redis import RedisClients

_COUNT_CHUNK = 1000
_COUNT_LIMIT = 10_000
_GROUPS = {
    keys.TASKS: keys.GROUP_WORKERS,
    keys.STATUS: keys.GROUP_OPERATORS,
    keys.LOGS: keys.GROUP_OPERATORS,
    keys.QUEUE: keys.GROUP_WORKERS,
}
_ASIDE = "_"
"""What the names of consumers begin with that are nobody: entries wait under them."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """One partition, or the task queue. `provisioned` is False where the stream or its group does not exist."""

    topic: str
    partition: int
    length: int
    pending: int
    waiting: int
    delayed: int
    oldest_age_ms: int
    unread_age_ms: int
    """Age of the oldest entry that nobody has read."""
    provisioned: bool

    @property
    def settled(self) -> int:
        """Entries of the task queue that are acknowledged and still there: our workers leave none."""
        return max(0, self.length - self.pending - self.waiting - self.delayed)


@dataclass(frozen=True, slots=True)
class _Group:
    pending: int
    lag: int | None
    delivered: str


class Backlogs:
    """Reads the backlog of every partition and of the task queue. Raises `UNAVAILABLE` where Redis does not answer."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config, count_limit: int = _COUNT_LIMIT) -> None:
        """`count_limit`: how many unread entries of a partition are counted where the server has lost count."""
        self._clients = clients
        self._count_limit = count_limit
        streams = config.streams
        self._shapes = {
            keys.TASKS: streams.tasks.partitions,
            keys.STATUS: streams.status.partitions,
            keys.LOGS: streams.logs.partitions,
            keys.DLQ: streams.dlq.partitions,
        }

    async def read(self) -> list[Backlog]:
        """Every partition, by topic; the task queue last."""
        partitions = [part for topic in self._shapes for part in await self.topic(topic)]
        return [*partitions, await self.queue()]

    async def topic(self, topic: str) -> list[Backlog]:
        """The partitions of one topic."""
        now = await self._clients.now_ms()
        return [
            await self._one(topic, partition, keys.stream(topic, partition), now)
            for partition in range(self._shapes[topic])
        ]

    async def queue(self) -> Backlog:
        """The task queue: pending is what a worker has; what lies with nobody waits, or is delayed."""
        whole = await self._one(keys.QUEUE, 0, keys.QUEUE, await self._clients.now_ms())
        if not whole.pending:
            return replace(whole, delayed=0)
        summary = await self._clients.commands.xpending(keys.QUEUE, keys.GROUP_WORKERS)
        held = {_text(consumer["name"]): int(consumer["pending"]) for consumer in summary["consumers"]}
        aside = sum(count for name, count in held.items() if name.startswith(_ASIDE))
        delayed = held.get(keys.DELAYED, 0)
        return replace(
            whole, pending=sum(held.values()) - aside, waiting=whole.waiting + aside - delayed, delayed=delayed
        )

    async def _one(self, topic: str, partition: int, stream: str, now: int) -> Backlog:
        name = _GROUPS.get(topic, "")
        pipe = self._clients.commands.pipeline(transaction=False)
        pipe.xlen(stream)
        pipe.zcard(keys.delayed(stream))
        pipe.exists(stream)
        pipe.xinfo_groups(stream)
        length, delayed, exists, groups = await pipe.execute(raise_on_error=False)
        group = _group(groups, name)
        waiting = await self._waiting(stream, name, length, group)
        unread, oldest = await self._oldest(stream, name, group) if length else (None, None)
        return Backlog(
            topic=topic,
            partition=partition,
            length=length,
            pending=group.pending if group else 0,
            waiting=waiting,
            delayed=delayed,
            oldest_age_ms=max(0, now - oldest) if oldest is not None else 0,
            unread_age_ms=max(0, now - unread) if unread is not None else 0,
            provisioned=bool(exists) and (group is not None or not name),
        )

    async def _waiting(self, stream: str, name: str, length: int, group: _Group | None) -> int:
        """What the group has not read. Servers lose count after deletions; then it is counted, up to a limit."""
        if group is None:
            return length if name else 0  # dead letters wait for nobody: they are kept to be looked at
        first = await self._range(stream, START, 1)
        if not first or parse_id(first[0]) > parse_id(group.delivered):
            return length  # also where others have cut off what was not read, which the server still counts
        if group.lag is not None and group.lag <= length:
            return group.lag
        counted, after = 0, group.delivered
        while counted < self._count_limit:
            chunk = min(_COUNT_CHUNK, self._count_limit - counted)
            entries = await self._range(stream, after, chunk)
            counted += len(entries)
            if len(entries) < chunk:
                break
            after = entries[-1]
        return counted

    async def _oldest(self, stream: str, name: str, group: _Group | None) -> tuple[int | None, int | None]:
        """The time of the oldest entry that nobody has read; and of the oldest that is that or pending."""
        unread = [parse_id(entry)[0] for entry in await self._range(stream, group.delivered if group else "0-0", 1)]
        both = list(unread)
        if group and group.pending:
            summary = await self._clients.commands.xpending(stream, name)
            if summary and (least := summary["min"]):
                both.append(parse_id(_text(least))[0])
        return min(unread, default=None), min(both, default=None)

    async def _range(self, stream: str, after: str, count: int) -> list[str]:
        reply = await self._clients.commands.execute_command("XRANGE", stream, f"({after}", "+", "COUNT", count)
        return [_text(entry) for entry, _ in reply]


def _group(groups: Any, name: str) -> _Group | None:
    if isinstance(groups, Exception):
        return None
    for group in groups:
        facts: Mapping[str, Any] = {_text(key): value for key, value in group.items()}
        if _text(facts["name"]) == name:
            return _Group(facts["pending"], facts.get("lag"), _text(facts["last-delivered-id"]))
    return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
