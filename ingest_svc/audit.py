"""Finds open jobs whose work is on no stream, so that nobody would ever take it up.

Accepted work is on its stream, or noted in an outbox: scripts see to that. Only where somebody deletes an entry, trims
or removes a stream, or restores a backup, is it lost. So all open jobs are walked, some pages a turn, each turn that of
one process. The lost ones among task jobs are queued again here, from their records; those of manifests are handed on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kernel.durations import millis
from kernel.ledger.base import Base
from kernel.ledger.recalls import Recalls
from kernel.ledger.record import FETCH
from kernel.ledger.state_index import walk
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("ledger.audit")

PAGE: Final = 1000
"""Jobs that are looked at together."""
PAGES: Final = 10
"""Pages of a turn."""
_ENTRY: Final = re.compile(rb"\d{1,20}-\d{1,20}")
_ENTRIES: Final = 100
"""Entries that one script looks at; each of them may hold 200 KB."""
_OPEN: Final = ("queued", "running")
_FIELDS: Final = (
    *("status", "task", "entry", "updated_ts", "published", "job_type", "direct", "fin"),
    *("resource_total", "resource_completed", "resource_failed", "bucket"),
)


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A fetch job that has not ended, as it was read."""

    job_id: str
    job_type: str
    total: int
    settled: int
    updated_ms: int
    published_ms: int
    """When its tasks were last added to their lane; 0 where nobody knows."""
    direct: bool
    bucket: str
    """Where its documents lie; empty where the record does not say."""
    raw: tuple[bytes, bytes]
    """The same two times as the record has them."""


class JobAudit(Base):
    """One turn after another. Raises `UNAVAILABLE` where Redis does not answer."""

    async def begin(self, interval: float) -> bool:
        """Whether this turn is the caller's; all who ask share one in each `interval`, in seconds."""
        pause = max(1, int(interval * 1000))
        return bool(await self._clients.commands.execute_command("SET", keys.JOBS_AUDIT, "1", "NX", "PX", pause))

    async def turn(self) -> list[OpenJob]:
        """Looks at the next jobs: queues the lost task jobs again, and returns the open fetch jobs."""
        return [job for state in _OPEN for job in await self._state(state)]

    async def _state(self, state: str) -> list[OpenJob]:
        """The next pages of one state."""
        place = (await self._one("HGET", keys.JOBS_AUDITED, state) or b"").decode()
        found: list[OpenJob] = []
        for _ in range(PAGES):
            job_ids, place = await walk(self._clients, state, place, PAGE)
            found += await self._page(job_ids)
            if not place:
                break
        await self._clients.commands.execute_command("HSET", keys.JOBS_AUDITED, state, place)
        return found

    async def restore_delays(self) -> None:
        """Makes those task jobs due that wait for their next attempt and have lost its time."""
        lane, after, due = keys.QUEUE, "-", 0
        names = [lane, keys.lease(lane), keys.redo(lane), keys.delayed(lane)]
        while after:
            args: list[Arg] = [keys.GROUP_WORKERS, after, "+", _ENTRIES, 0, 0]
            following, _, _, restored, *_ = await self._clients.call(scripts.LANE_AUDIT, names, args)
            after, due = following.decode(), due + restored
        told_of_delays(keys.QUEUE, due)

    async def _page(self, job_ids: Sequence[str]) -> list[OpenJob]:
        found = await self._many([("HMGET", keys.job(job_id), *_FIELDS) for job_id in job_ids]) if job_ids else []
        fetches: list[OpenJob] = []
        tasks: list[tuple[str, str, bytes]] = []
        for job_id, values in zip(job_ids, found, strict=True):
            if not isinstance(values, list) or values[0] not in {state.encode() for state in _OPEN}:
                continue
            facts = dict(zip(_FIELDS, values, strict=True))
            name = (facts["task"] or b"").decode(errors="replace")
            if name in {"", FETCH}:
                fetches += [] if facts["fin"] else [_fetch(job_id, facts)]
            elif _ENTRY.fullmatch(facts["entry"] or b""):
                tasks.append((job_id, name, facts["entry"]))
        await self._recall(tasks)
        return fetches

    async def _recall(self, tasks: Sequence[tuple[str, str, bytes]]) -> None:
        """Queues those again whose entry is gone."""
        gone: set[bytes] = set()
        for i in range(0, len(tasks), _ENTRIES):
            entries = [entry for _, _, entry in tasks[i : i + _ENTRIES]]
            gone.update(await self._clients.call(scripts.GONE, [keys.QUEUE], [*entries]))
        recalls = Recalls(self._clients, self._config)
        lost = [(name, job_id) for job_id, name, entry in tasks if entry in gone]
        queued = [job_id for name, job_id in lost if await recalls.lost(name, job_id) == "queued"]
        if queued:
            metrics.ENTRIES_LOST.labels(topic=keys.QUEUE, outcome="requeued").inc(len(queued))
            _log.warn("task_jobs_found_again", count=len(queued), job_id=queued[0])


def told_of_delays(topic: str, count: int) -> None:
    """Counts and logs tasks that had lost the time of their next attempt."""
    if count:
        metrics.DELAYS_LOST.labels(topic=topic).inc(count)
        _log.warn("delays_found_again", topic=topic, count=count)


def grace_ms(config: Any) -> int:
    """How long a job must have had no news before it is looked for: who is at it has told of it by then."""
    return int(max(millis(config.ingest.submit_lease), 2 * millis(config.worker.heartbeat_ttl)))


def _fetch(job_id: str, facts: dict[str, Any]) -> OpenJob:
    def number(name: str) -> int:
        value = facts[name] or b""
        return int(value) if value.isdigit() and len(value) <= 15 else 0

    return OpenJob(
        job_id,
        (facts["job_type"] or b"").decode(errors="replace"),
        number("resource_total"),
        number("resource_completed") + number("resource_failed"),
        number("updated_ts"),
        number("published"),
        facts["direct"] == b"1",
        (facts["bucket"] or b"").decode(errors="replace"),
        (facts["published"] or b"", facts["updated_ts"] or b""),
    )
