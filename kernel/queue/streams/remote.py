"""Leases and claims of workers elsewhere, which never touch Redis themselves.

A remote worker is a consumer of the lane like any other, with a lease of its own that its heartbeats renew. Each life
of its lease has another consumer name (`{worker id}~{life}`): what a lapsed life held is left to the reaper, and can
never come alive again under a worker that has forgotten it. Nothing is kept in this process: any worker service can
serve any call, before and after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.durations import millis
from kernel.ledger.base import TERMINAL
from kernel.queue.streams import entry as entries
from kernel.queue.streams.lent import LIFE, Lent
from kernel.queue.work.types import Claim
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients

FENCED = "fenced"
"""The outcome of a claim that a later attempt has overtaken."""
_PENDING = 1000
_TTL_DIGITS = 7
"""What others wrote may be no number of seconds: the scripts take as many digits."""
_FIRST_TOKEN = b"1"
"""The fence of a first attempt, which the record does not write down."""


@dataclass(frozen=True, slots=True)
class Held:
    """An entry that a remote worker holds, and for how long it has."""

    claim: Claim
    """Without its payload where it is a task job."""
    lent: Lent
    held_ms: int
    ended_ms: int | None = None
    """How long ago a task job ended; None for one that goes on."""


class RemoteLeases:
    """The leases of remote workers and what they hold. Every method raises `UNAVAILABLE` while Redis is down."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self.ttl_ms = millis(config.worker.heartbeat_ttl)
        self._clients = clients
        self._queue = config.streams.tasks.partitions
        """The place of the queue among the lanes."""
        self._lanes = [*(keys.stream(keys.TASKS, p) for p in range(self._queue)), keys.QUEUE]

    async def join(self, worker_id: str) -> str:
        """The consumer under whose lease the worker claims: renewed where one holds, begun otherwise."""
        alive = await self.renew(worker_id)
        if alive:
            return alive[0]
        consumer = f"{worker_id}{LIFE}{await self._clients.now_ms():x}"
        await self._beat(consumer, first=True)
        return consumer

    async def renew(self, worker_id: str) -> list[str]:
        """Renews the worker's lease; the consumers under which it holds tasks, none where the lease had lapsed."""
        now = await self._clients.now_ms()
        members = await self._clients.commands.execute_command("ZRANGEBYSCORE", keys.lease(self._lanes[0]), now, "+inf")
        prefix = f"{worker_id}{LIFE}".encode()
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

    def knows(self, lent: Lent) -> bool:
        """Whether there can be such a claim: task jobs are on the queue, and nothing else is."""
        return lent.partition < len(self._lanes) and (lent.partition == self._queue) == bool(lent.job_id)

    async def claim_of(self, lent: Lent) -> Claim | None:
        """The claim to settle; None where its entry is gone."""
        lane = self._lanes[lent.partition]
        rows = await self._clients.commands.execute_command("XRANGE", lane, lent.entry, lent.entry)
        if not rows:
            return None
        entry = _entry(lane, lent.partition, rows[0])
        if entry.decode() or entry.work is None:
            return None
        if isinstance(entry.work, QueuedTask):
            await self._fill(entry.work)
        return Claim(
            partition=lent.partition,
            entry=lent.entry,
            payload=entry.payload,
            work=entry.work,
            token=lent.token,
            attempt=lent.attempt,
            crashes=lent.crashes,
            traceparent=entry.traceparent,
            counted=entry.ledgered,
        )

    async def held(self, consumer: str) -> list[Held]:
        """What a consumer holds."""
        resources = (self._held_in(p, consumer) for p in range(self._queue))
        parts = await asyncio.gather(self._held_of_queue(consumer), *resources)
        return [held for part in parts for held in part]

    async def holds(self, lent: Lent) -> bool:
        """Whether the worker still holds a task job, under a lease that has not lapsed."""
        return bool(await self._listed(lent.holder, [lent.consumer], lent.entry, lent.entry))

    async def is_empty(self, consumer: str) -> bool:
        """Whether a consumer holds nothing at all."""
        held = await asyncio.gather(*(self._first_of(lane, consumer) for lane in self._lanes))
        return not any(held)

    async def runs_alone(self, consumer: str) -> bool:
        """Whether a consumer holds what must run alone: then it is lent nothing beside it."""
        return await self._first_of(keys.QUEUE, keys.solo(consumer))

    async def outcome_of(self, lent: Lent) -> str:
        """What the record says of a claim of the queue: as `SettleTaskResponse.outcome`, empty for nothing yet."""
        status, fence, retried = await self._record(lent.job_id, "status", "fence", "retried")
        if status is None:
            return ""
        if int(fence or _FIRST_TOKEN) != lent.token:
            return FENCED
        if status.decode() in TERMINAL:
            return "settled" if status in {b"done", b"error"} else "absorbed"
        return "retrying" if retried is not None and int(retried) == lent.token else ""

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
                claim.token = claim.task.replay << 20 | deliveries
                lent = Lent(consumer, partition, entry, claim.token, attempts, crashes)
                found.append(Held(claim, lent, idle_ms))
        return found

    async def _held_of_queue(self, consumer: str) -> list[Held]:
        rows = await self._listed(consumer, [consumer, keys.solo(consumer)], "-", "+")
        if not rows:
            return []
        now = await self._clients.now_ms()
        records = await asyncio.gather(
            *(self._record(row[6].decode(), "status", "fence", "updated_ts") for row in rows)
        )
        return [self._held(row, record, now) for row, record in zip(rows, records, strict=True)]

    def _held(self, row: Sequence[Any], record: Sequence[bytes | None], now: int) -> Held:
        consumer, entry, _, idle_ms, attempts, crashes, job_id, task = row
        status, fence, updated = record
        work = QueuedTask(job_id=job_id.decode(), task=task.decode())
        token = int(fence or _FIRST_TOKEN)
        lent = Lent(consumer.decode(), self._queue, entry.decode(), token, attempts, crashes, work.job_id)
        over = status is None or status.decode() in TERMINAL
        claim = Claim(self._queue, lent.entry, b"", work, token, attempts, crashes)
        return Held(claim, lent, idle_ms, max(0, now - int(updated or 0)) if over else None)

    async def _listed(self, holder: str, consumers: Sequence[str], first: str, last: str) -> list[list[Any]]:
        """Rows of `lent`."""
        args: list[str | int] = [keys.GROUP_WORKERS, holder, first, last, _PENDING, *consumers]
        lane = keys.QUEUE
        flat = await self._clients.call(scripts.LENT, [lane, keys.lease(lane), keys.redo(lane)], args)
        return [] if flat == [-1] else [flat[i : i + 8] for i in range(0, len(flat), 8)]

    async def _first_of(self, lane: str, consumer: str) -> bool:
        return bool(await self._clients.commands.xpending_range(lane, keys.GROUP_WORKERS, "-", "+", 1, consumer))

    async def _fill(self, task: QueuedTask) -> None:
        """What the record of a task says beside its entry, for the publications."""
        tenant, trace_id, ttl_s = await self._record(task.job_id, "tenant", "trace_id", "ttl_s")
        task.tenant = (tenant or b"").decode(errors="replace")
        task.trace_id = (trace_id or b"").decode(errors="replace")
        if ttl_s is not None and ttl_s.isdigit() and len(ttl_s) <= _TTL_DIGITS:
            task.ttl_s = int(ttl_s)

    async def _record(self, job_id: str, *fields: str) -> list[bytes | None]:
        found: list[bytes | None] = await self._clients.commands.execute_command("HMGET", keys.job(job_id), *fields)
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


def _entry(lane: str, partition: int, row: Sequence[object]) -> entries.QueueEntry:
    entry_id, fields = row
    flat = [part for pair in fields.items() for part in pair] if isinstance(fields, dict) else fields
    return entries.read(lane, partition, (entry_id, flat))
