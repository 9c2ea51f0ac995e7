"""How much lies in each partition, and how much of it is still to be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fetchbox.config.v1 import config_pb2
from kernel.log.offsets import START, parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients, Refused

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


@dataclass(frozen=True, slots=True)
class _Stream:
    """A partition, or the task queue."""

    topic: str
    partition: int

    @property
    def key(self) -> str:
        return self.topic if self.topic == keys.QUEUE else keys.stream(self.topic, self.partition)

    @property
    def group(self) -> str:
        """The group that works on it; empty for none."""
        return _GROUPS.get(self.topic, "")


_QUEUE = _Stream(keys.QUEUE, 0)


@dataclass(frozen=True, slots=True)
class _Head:
    """What is asked of a stream first."""

    stream: _Stream
    length: int
    delayed: int
    exists: bool
    group: _Group | None
    first: list[str]
    """The id of the first entry, if there is one."""

    @property
    def delivered(self) -> str:
        """The last id that the group has read."""
        return self.group.delivered if self.group else START


@dataclass(frozen=True, slots=True)
class _Tail:
    """What is asked of it behind what its group has read."""

    unread: list[str]
    """The id of the first unread entry, if there is one."""
    least: int | None
    """The time of the oldest pending entry."""


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
        partitions = [_Stream(topic, partition) for topic in self._shapes for partition in range(self._shapes[topic])]
        *found, queue = await self._all([*partitions, _QUEUE])
        return [*found, await self._of_queue(queue)]

    async def topic(self, topic: str) -> list[Backlog]:
        """The partitions of one topic."""
        return await self._all([_Stream(topic, partition) for partition in range(self._shapes[topic])])

    async def queue(self) -> Backlog:
        """The task queue: pending is what a worker has; what lies with nobody waits, or is delayed."""
        (queue,) = await self._all([_QUEUE])
        return await self._of_queue(queue)

    async def _of_queue(self, whole: Backlog) -> Backlog:
        if not whole.pending:
            return replace(whole, delayed=0)
        summary = await self._clients.commands.xpending(keys.QUEUE, keys.GROUP_WORKERS)
        held = {_text(consumer["name"]): int(consumer["pending"]) for consumer in summary["consumers"]}
        aside = sum(count for name, count in held.items() if name.startswith(_ASIDE))
        delayed = held.get(keys.DELAYED, 0)
        return replace(
            whole, pending=sum(held.values()) - aside, waiting=whole.waiting + aside - delayed, delayed=delayed
        )

    async def _all(self, streams: Sequence[_Stream]) -> list[Backlog]:
        """Two pipelines, however many streams there are; more only where a server has lost count."""
        now = await self._clients.now_ms()
        heads = await self._heads(streams)
        tails = await self._tails(heads)
        return [await self._one(head, tail, now) for head, tail in zip(heads, tails, strict=True)]

    async def _heads(self, streams: Sequence[_Stream]) -> list[_Head]:
        pipe = self._clients.commands.pipeline(transaction=False)
        for stream in streams:
            pipe.xlen(stream.key)
            pipe.zcard(keys.delayed(stream.key))
            pipe.exists(stream.key)
            pipe.xinfo_groups(stream.key)
            pipe.execute_command("XRANGE", stream.key, "-", "+", "COUNT", 1)
        replies = iter(await pipe.execute(raise_on_error=False))
        return [
            _Head(stream, _good(length), _good(delayed), bool(_good(exists)), _group(groups, stream.group), _ids(first))
            for stream, length, delayed, exists, groups, first in zip(streams, *[replies] * 5, strict=True)
        ]

    async def _tails(self, heads: Sequence[_Head]) -> list[_Tail]:
        held = [head for head in heads if head.group and head.group.pending]
        pipe = self._clients.commands.pipeline(transaction=False)
        for head in heads:
            pipe.execute_command("XRANGE", head.stream.key, f"({head.delivered}", "+", "COUNT", 1)
        for head in held:
            pipe.xpending(head.stream.key, head.stream.group)
        replies = await pipe.execute(raise_on_error=False)
        least = {head.stream: _least(reply) for head, reply in zip(held, replies[len(heads) :], strict=True)}
        return [_Tail(_ids(unread), least.get(head.stream)) for head, unread in zip(heads, replies, strict=False)]

    async def _one(self, head: _Head, tail: _Tail, now: int) -> Backlog:
        unread = parse_id(tail.unread[0])[0] if tail.unread and head.stream.group else None
        oldest = min((ms for ms in (unread, tail.least) if ms is not None), default=None)
        return Backlog(
            topic=head.stream.topic,
            partition=head.stream.partition,
            length=head.length,
            pending=head.group.pending if head.group else 0,
            waiting=await self._waiting(head),
            delayed=head.delayed,
            oldest_age_ms=max(0, now - oldest) if oldest is not None else 0,
            unread_age_ms=max(0, now - unread) if unread is not None else 0,
            provisioned=head.exists and (head.group is not None or not head.stream.group),
        )

    async def _waiting(self, head: _Head) -> int:
        """What the group has not read. Servers lose count after deletions; then it is counted, up to a limit."""
        if head.group is None:
            return (
                head.length if head.stream.group else 0
            )  # dead letters wait for nobody: they are kept to be looked at
        if not head.first or parse_id(head.first[0]) > parse_id(head.group.delivered):
            return head.length  # also where others have cut off what was not read, which the server still counts
        if head.group.lag is not None and head.group.lag <= head.length:
            return head.group.lag
        counted, after = 0, head.group.delivered
        while counted < self._count_limit:
            chunk = min(_COUNT_CHUNK, self._count_limit - counted)
            entries = await self._range(head.stream.key, after, chunk)
            counted += len(entries)
            if len(entries) < chunk:
                break
            after = entries[-1]
        return counted

    async def _range(self, stream: str, after: str, count: int) -> list[str]:
        reply = await self._clients.commands.execute_command("XRANGE", stream, f"({after}", "+", "COUNT", count)
        return _ids(reply)


def _group(groups: Any, name: str) -> _Group | None:
    if isinstance(groups, Exception):
        return None
    for group in groups:
        facts: Mapping[str, Any] = {_text(key): value for key, value in group.items()}
        if _text(facts["name"]) == name:
            return _Group(facts["pending"], facts.get("lag"), _text(facts["last-delivered-id"]))
    return None


def _ids(rows: Any) -> list[str]:
    return [_text(entry) for entry, _ in _good(rows)]


def _least(pending: Any) -> int | None:
    """The time of the oldest pending entry. Where the group is gone by now there is none."""
    if isinstance(pending, Refused) or not pending["min"]:
        return None
    return parse_id(_text(pending["min"]))[0]


def _good(reply: Any) -> Any:
    """The reply; raises what Redis said instead."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
