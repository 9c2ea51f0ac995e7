"""Leases and claims of workers elsewhere, which never touch Redis themselves.

A remote worker is a consumer of the lane like any other, with a lease of its own that its heartbeats renew. Each life
of its lease has another consumer name (`{worker id}~{life}`): what a lapsed life held is left to the reaper, and can
never come alive again under a worker that has forgotten it. Nothing is kept in this process: any worker service can
serve any call, before and after a restart.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fetchbox.config.v1 import config_pb2
from kernel import keys, scripts
from kernel.config import millis
from kernel.lanes import entry as entries
from kernel.lanes.types import Claim
from kernel.redis import RedisClients

_LIFE = "~"
_PENDING = 1000
_NAME = re.compile(
    r"(?P<consumer>[A-Za-z0-9_~-]+):(?P<partition>[0-9]{1,4}):(?P<entry>[0-9]{1,15}-[0-9]{1,15})"
    r":(?P<token>[0-9]{1,15}):(?P<attempt>[0-9]{1,9}):(?P<crashes>[0-9]{1,9})"
)
"""The parts of a claim's name; no number in it is too large for a script or a message."""


@dataclass(frozen=True, slots=True)
class Lent:
    """One claim of a remote worker: who holds which entry, and what its settlement needs."""

    consumer: str
    partition: int
    entry: str
    token: int
    attempt: int
    crashes: int

    def name(self) -> str:
        """The claim as the remote worker names it: opaque, and all that any process needs to settle it."""
        parts = (self.consumer, self.partition, self.entry, self.token, self.attempt, self.crashes)
        return base64.urlsafe_b64encode(":".join(map(str, parts)).encode()).decode().rstrip("=")

    @classmethod
    def of(cls, name: str) -> Lent | None:
        """The claim of a name; None for a text that is none."""
        try:
            text = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        except (ValueError, binascii.Error):
            return None
        parts = _NAME.fullmatch(text)
        if parts is None:
            return None
        numbers = (int(parts[name]) for name in ("token", "attempt", "crashes"))
        return cls(parts["consumer"], int(parts["partition"]), parts["entry"], *numbers)

    def belongs_to(self, worker_id: str) -> bool:
        """Whether this worker was lent it, in whatever life of its lease."""
        return self.consumer.rpartition(_LIFE)[0] == worker_id


@dataclass(frozen=True, slots=True)
class Held:
    """An entry that a remote worker holds, and for how long it has."""

    claim: Claim
    lent: Lent
    held_ms: int


class RemoteLeases:
    """The leases of remote workers and what they hold. Every method raises `UNAVAILABLE` while Redis is down."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self.ttl_ms = millis(config.worker.heartbeat_ttl)
        self._clients = clients
        self._lanes = [keys.stream(keys.TASKS, p) for p in range(config.streams.tasks.partitions)]

    async def join(self, worker_id: str) -> str:
        """The consumer under whose lease the worker claims: renewed where one holds, begun otherwise."""
        alive = await self.renew(worker_id)
        if alive:
            return alive[0]
        consumer = f"{worker_id}{_LIFE}{await self._clients.now_ms():x}"
        await self._beat(consumer, first=True)
        return consumer

    async def renew(self, worker_id: str) -> list[str]:
        """Renews the worker's lease; the consumers under which it holds tasks, none where the lease had lapsed."""
        now = await self._clients.now_ms()
        members = await self._clients.commands.execute_command("ZRANGEBYSCORE", keys.lease(self._lanes[0]), now, "+inf")
        prefix = f"{worker_id}{_LIFE}".encode()
        own = [member.decode() for member in members if member.startswith(prefix)]
        return [consumer for consumer in own if await self._beat(consumer, first=False)]

    async def transfer(
        self, holder: str, origin: str, to: str, partition: int, ids: Sequence[str]
    ) -> list[bool] | None:
        """Moves entries from one consumer to another while `holder` has a lease; None where it has none."""
        lane = self._lanes[partition]
        moved = await self._clients.call(
            scripts.TRANSFER, [lane, keys.lease(lane)], [keys.GROUP_WORKERS, holder, origin, to, *ids]
        )
        return None if moved == [-1] else [bool(one) for one in moved]

    async def claim_of(self, lent: Lent) -> Claim | None:
        """The claim to settle; None where its entry is gone."""
        if not 0 <= lent.partition < len(self._lanes):
            return None
        lane = self._lanes[lent.partition]
        rows = await self._clients.commands.execute_command("XRANGE", lane, lent.entry, lent.entry)
        if not rows:
            return None
        entry = _entry(lane, lent.partition, rows[0])
        if entry.decode() or entry.work is None:
            return None
        return Claim(
            partition=lent.partition,
            entry=lent.entry,
            payload=entry.payload,
            work=entry.work,
            token=lent.token,
            attempt=lent.attempt,
            crashes=lent.crashes,
            traceparent=entry.traceparent,
        )

    async def held(self, consumer: str) -> list[Held]:
        """What a consumer holds."""
        parts = await asyncio.gather(*(self._held_in(p, consumer) for p in range(len(self._lanes))))
        return [held for part in parts for held in part]

    async def _held_in(self, partition: int, consumer: str) -> list[Held]:
        lane = self._lanes[partition]
        commands = self._clients.commands
        rows = await commands.xpending_range(lane, keys.GROUP_WORKERS, "-", "+", _PENDING, consumer)
        found = []
        for row in rows:
            attempts, crashes = await self._redo(lane, row["message_id"])
            deliveries, idle_ms = int(row["times_delivered"]), int(row["time_since_delivered"])
            entry = bytes(row["message_id"]).decode()  # type: ignore[arg-type]  # our clients answer in bytes
            claim = await self.claim_of(Lent(consumer, partition, entry, deliveries, attempts, crashes))
            if claim is not None:
                claim.token = claim.work.replay << 20 | deliveries
                lent = Lent(consumer, partition, entry, claim.token, attempts, crashes)
                found.append(Held(claim, lent, idle_ms))
        return found

    async def _redo(self, lane: str, entry: object) -> tuple[int, int]:
        """Attempts and crashes of an entry, before its present claim."""
        redo = await self._clients.commands.execute_command("HGET", keys.redo(lane), entry)
        attempts, crashes = (redo or b"0:0").split(b":")
        return int(attempts), int(crashes)

    async def _beat(self, consumer: str, *, first: bool) -> bool:
        beats = (
            self._clients.call(scripts.BEAT, [keys.lease(lane)], [consumer, self.ttl_ms, 1 if first else 0])
            for lane in self._lanes
        )
        return all(await asyncio.gather(*beats))


def _entry(lane: str, partition: int, row: Sequence[object]) -> entries.Entry:
    entry_id, fields = row
    flat = [part for pair in fields.items() for part in pair] if isinstance(fields, dict) else fields
    return entries.read(lane, partition, (entry_id, flat))
