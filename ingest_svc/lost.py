"""Resources of open jobs that are on no stream: published again from the stored tasks, or ended as dead letters.

An entry is live while it is pending or not yet read. A job that has had no news for a while, and has a resource that is
neither settled nor live, has lost an entry: somebody has deleted it, has cut or removed its stream, or acknowledged it.
The tasks of a job are kept beside its manifest, so the resource is added to its lane once more. Where they are not (any
more), its place is added: the worker that claims it ends it with `SYSTEM_ENTRY_LOST`. A direct producer's tasks are
stored nowhere, and its job is given the time of `ledger.idle_timeout`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask
from ingest_svc import tasks
from ingest_svc.audit import JobAudit, OpenJob, grace_ms, told_of_delays
from kernel import places
from kernel.durations import millis
from kernel.errors import FetchboxError
from kernel.ledger.base import Base
from kernel.objects import ObjectStore
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("ingest.lost")

_PAGE: Final = 200
"""Entries that are read together."""
_PAGES: Final = 50
"""Pages of a partition that are read at most: what is behind is looked at when those before are done."""
_CHUNK: Final = 500
"""Resources that one script adds."""
_OUTCOMES: Final = (("requeued", "0"), ("dead_letter", "1"))


@dataclass
class _Live:
    """What is live of a partition: entries up to `until_ms`."""

    until_ms: float
    busy: bool = False
    """A worker is at an entry that is gone: whose that is, nobody can tell."""
    resources: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The indexes by job."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many entries a job has."""

    def add(self, payload: bytes) -> None:
        """One entry."""
        try:
            task = DownloadTask.FromString(payload)
        except DecodeError:
            return
        self.resources[task.job_id].add(task.resource_index)
        self.counts[task.job_id] += 1


class LostWork(Base):
    """One turn after another, of one process at a time."""

    def __init__(self, clients: RedisClients, config: Config, objects: ObjectStore, interval: float) -> None:
        """`interval`, in seconds, lies between two turns of all processes together."""
        super().__init__(clients, config)
        self._audit = JobAudit(clients, config)
        self._objects = objects
        self._interval = interval
        self._grace_ms = grace_ms(config)
        self._idle_ms = millis(config.ledger.idle_timeout)
        self._longest_ms = millis(config.worker.deadline) + 2 * millis(config.worker.heartbeat_ttl)

    async def run(self) -> None:
        """One turn, if it is ours."""
        if not await self._audit.begin(self._interval):
            return
        await self._audit.restore_delays()
        now = await self._clients.now_ms()
        lanes: dict[str, list[OpenJob]] = {lane: [] for lane in self._lanes()}
        for job in await self._audit.turn():
            if _bound(job) + (self._grace_ms if job.published_ms else self._idle_ms) < now and job.settled < job.total:
                lanes[self._lane_of(job.job_id)].append(job)
        for lane, jobs in lanes.items():
            await self._lane(lane, jobs)

    async def _lane(self, lane: str, jobs: Sequence[OpenJob]) -> None:
        live = await self._live(lane, max(map(_bound, jobs), default=0))
        for job in jobs:
            if live.busy or _bound(job) >= live.until_ms:
                continue
            try:
                await self._look(lane, job, live)
            except (FetchboxError, ValueError) as error:
                _log.warn("lost_work_kept", job_id=job.job_id, error=error)

    async def _look(self, lane: str, job: OpenJob, live: _Live) -> None:
        """Adds what is lost of a job. Those whose tasks are not published yet are left to the sweep."""
        if await self._one("ZSCORE", keys.outbox(lane), job.job_id) is not None:
            return
        lost = await self._lost_direct(job, live) if job.direct else await self._lost(job, live)
        found: Counter[str] = Counter()
        raw = job.raw
        for i in range(0, len(lost), _CHUNK):
            chunk = lost[i : i + _CHUNK]
            args = [part for payload, gone in chunk for part in (payload, gone)]
            if not await self._clients.call(scripts.REPUBLISH, [keys.job(job.job_id), lane], [*raw, *args]):
                break
            raw = (await self._one("HGET", keys.job(job.job_id), "published") or b"", raw[1])
            found.update(gone for _, gone in chunk)
        for outcome, gone in _OUTCOMES:
            if found[gone]:
                metrics.ENTRIES_LOST.labels(topic=keys.TASKS, outcome=outcome).inc(found[gone])
        if found:
            _log.warn("resources_found_again", job_id=job.job_id, count=found["0"], dead=found["1"])

    async def _lost(self, job: OpenJob, live: _Live) -> list[tuple[bytes, str]]:
        """The payload of each resource that is neither settled nor live, and `1` where nobody has its bytes."""
        bits = await self._one("GET", keys.job_bits(job.job_id)) or b""
        there = live.resources[job.job_id]
        missing = [i for i in range(1, job.total + 1) if i not in there and not _is_set(bits, i - 1)]
        stored = await self._stored(job) if missing else {}
        lost = [stored.get(index) or _place(job, index) for index in missing]
        numbers = await self._replays(job, [task.resource_id for task in lost]) if lost else []
        for task, number in zip(lost, numbers, strict=True):
            task.replay, task.attempt = number, 0
        return [(task.SerializeToString(), "0" if task.resource_index in stored else "1") for task in lost]

    async def _lost_direct(self, job: OpenJob, live: _Live) -> list[tuple[bytes, str]]:
        count = job.total - job.settled - live.counts[job.job_id]
        places_ = [_place(job, 0, f"lost-{number}") for number in range(1, count + 1)]
        return [(task.SerializeToString(), "1") for task in places_]

    async def _stored(self, job: OpenJob) -> dict[int, DownloadTask]:
        packed = await self._objects.get(job.bucket or self._objects.bucket, places.tasks(job.job_type, job.job_id))
        decoded = [DownloadTask.FromString(task) for task in tasks.unpack(packed)] if packed is not None else []
        return {task.resource_index: task for task in decoded}

    async def _replays(self, job: OpenJob, resource_ids: Sequence[str]) -> list[int]:
        """How often each was replayed: what is added again must not be overtaken by its own replay."""
        if job.total == 1:
            found: Any = [await self._one("HGET", keys.job(job.job_id), "replays")]
        else:
            fields = [f"p:{resource_id}" for resource_id in resource_ids]
            found = await self._one("HMGET", keys.job_resources(job.job_id), *fields) or [None] * len(fields)
        return [int(value) if value and value.isdigit() else 0 for value in found]

    # What is live.

    async def _live(self, lane: str, until_ms: int) -> _Live:
        """Everything live of a partition that was added until then, as far as it can be read; drops what is gone.

        Where nobody asks for that (0), only the times of retries are looked after.
        """
        live = _Live(until_ms + 1)
        await self._pending(lane, live, until_ms)
        if until_ms:
            await self._unread(lane, live)
        return live

    async def _pending(self, lane: str, live: _Live, until_ms: int) -> None:
        names = [lane, keys.lease(lane), keys.redo(lane), keys.delayed(lane)]
        after, dropped, due = "-", 0, 0
        for _ in range(_PAGES):
            args = [keys.GROUP_WORKERS, after, until_ms or "+", _PAGE, self._longest_ms, int(until_ms > 0)]
            following, busy, gone, restored, *payloads = await self._clients.call(scripts.LANE_AUDIT, names, args)
            live.busy = live.busy or bool(busy)
            dropped, due, after = dropped + gone, due + restored, following.decode()
            for payload in payloads:
                live.add(payload)
            if not after:
                break
        else:
            live.until_ms = min(live.until_ms, int(after[1:].partition("-")[0]))
        told_of_delays(keys.TASKS, due)
        if dropped:
            _log.warn("deleted_entries_dropped", lane=lane, count=dropped)

    async def _unread(self, lane: str, live: _Live) -> None:
        groups = await self._groups(lane)
        after = "-" if groups is None else f"({groups}"
        for _ in range(_PAGES):
            rows = await self._clients.commands.execute_command(
                b"XRANGE", lane, after, int(live.until_ms), "COUNT", _PAGE
            )
            for _, fields in rows:
                live.add(dict(zip(fields[::2], fields[1::2], strict=True)).get(b"payload", b""))
            if len(rows) < _PAGE:
                return
            after = f"({rows[-1][0].decode()}"
        live.until_ms = min(live.until_ms, int(after[1:].partition("-")[0]))

    async def _groups(self, lane: str) -> str | None:
        """How far the workers have read; None where there is no group, or no stream: they begin anew."""
        found = await self._one("EXISTS", lane)
        groups = await self._clients.commands.xinfo_groups(lane) if found else []
        return next((g["last-delivered-id"].decode() for g in groups if g["name"] == keys.GROUP_WORKERS.encode()), None)


def _bound(job: OpenJob) -> int:
    """No entry of the job is younger."""
    return max(job.updated_ms, job.published_ms)


def _is_set(bits: bytes, place: int) -> bool:
    return place >> 3 < len(bits) and bool(bits[place >> 3] & (0x80 >> (place & 7)))


def _place(job: OpenJob, index: int, resource_id: str = "") -> DownloadTask:
    """What stands for a resource whose bytes nobody has."""
    return DownloadTask(
        job_id=job.job_id,
        job_type=job.job_type,
        resource_id=resource_id or str(index),
        resource_index=index,
        resources_total=job.total,
    )
