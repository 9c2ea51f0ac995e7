"""The coalescer: settlements gather while a reply is awaited, and the next pipeline leaves as soon as it came.

Each cycle is one pipeline of three generations: the acknowledgements of the flush whose publications are in Redis,
the publications of the flush whose settlements are recorded, and the settlements that have gathered since. So the
order (record, publish, acknowledge) holds for every task, and a crash anywhere repeats a step but loses none. There
is no timer: an idle lane sends at once, a busy one sends more at a time. The events that running task jobs report go
before the settlements, so an attempt's events are in its stream before its last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kernel.clock import Clock
from kernel.ledger.base import begin_keys, record_keys, settle_keys
from kernel.queue.streams.calls import JobCall
from kernel.queue.streams.deferring import DEFERRED_EVERY_MS
from kernel.queue.streams.item import EventReport, Item
from kernel.queue.streams.outcomes import Outcomes
from kernel.queue.streams.publications import Flush
from kernel.queue.work.types import Claim
from kernel.redis import keys, scripts
from kernel.redis.link import Link, command, is_error, lacks_group
from kernel.redis.pipe import Command, PipeLost
from kernel.telemetry import tracing
from kernel.telemetry.logs import get_logger

_MOST = 512
"""Settlements in one cycle, so that no script holds Redis for long."""
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_log = get_logger(__name__)


class Settler:
    """Settles, publishes and acknowledges, one pipeline after the other."""

    def __init__(
        self,
        link: Link,
        outcomes: Outcomes,
        partition: Mapping[str, int],
        clock: Clock,
        finalizes: Callable[[str], bool],
        valid: Callable[[Claim], bool],
        ttl_s: int,
    ) -> None:
        """`partition` tells a lane's place; `valid`, whether a claim is still of this life of the lease.

        `ttl_s` is the life of an ended task job whose record names none.
        """
        self._link = link
        self._partition = partition
        self._outcomes = outcomes
        self._clock = clock
        self._finalizes = finalizes
        self._calls = [
            JobCall(scripts.SETTLE, settle_keys, (final, "worker.settle", DEFERRED_EVERY_MS)) for final in ("0", "1")
        ]
        self._task_call = JobCall(scripts.TASK_SETTLE, begin_keys, ())
        self._event_call = JobCall(scripts.TASK_EVENTS, record_keys, ())
        self._ttl_s = ttl_s
        self._valid = valid
        self._reports: list[EventReport] = []
        self._gathered: list[Item] = []
        self._settling: list[Item] = []
        self._ready: list[Flush] = []
        self._published: list[Flush] = []
        self._extra: list[Flush] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to work."""
        self._task = asyncio.create_task(self._run(), name="settler")

    async def flush(self) -> None:
        """Waits until nothing is left to settle, publish or acknowledge."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Stops at once; what is not acknowledged is repeated by whoever gets it. Safe twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def add(self, item: Item) -> None:
        """Takes an outcome; `item.future`, where it has one, tells what became of it."""
        self._gathered.append(item)
        self._poke()

    def report(self, report: EventReport) -> None:
        """Takes events of a running task; `report.future` tells whether its attempt still goes on."""
        self._reports.append(report)
        self._poke()

    def publish(self, flush: Flush) -> None:
        """Publishes and acknowledges what needs no settlement: repetitions, undecodable entries."""
        self._extra.append(flush)
        self._poke()

    def unfinished(self) -> set[tuple[int, str]]:
        """Partition and entry of all that is being settled, published or acknowledged."""
        items = {(item.claim.partition, item.claim.entry) for item in (*self._gathered, *self._settling)}
        held = set[tuple[str, str]]().union(*(flush.held() for flush in (*self._ready, *self._published, *self._extra)))
        return items | {(self._partition[lane], entry) for lane, entry in held}

    def _poke(self) -> None:
        if not self._wake.is_set():
            self._idle.clear()
            self._wake.set()

    async def _run(self) -> None:
        pause = _PAUSE
        while True:
            await self._wake.wait()
            try:
                await self._cycle()
                pause = _PAUSE
            except PipeLost as lost:
                _log.warn("lane_link_lost", error=str(lost))
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001 - a fault of ours is shown, and never ends the settling silently
                _log.exception("lane_settlement_broken", error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            rest = (self._reports, self._gathered, self._settling, self._ready, self._published, self._extra)
            if not any(rest):
                self._wake.clear()
                self._idle.set()

    async def _cycle(self) -> None:
        """One pipeline. Nothing is forgotten before its reply has come."""
        self._ready += self._extra
        self._extra = []
        reports = self._to_report()
        groups = self._to_settle()
        ready = list(self._ready)
        commands = [made for flush in self._published for made in flush.acknowledgements()]
        commands += [made for flush in ready for made in flush.commands()]
        commands += _notes(groups)
        publications = len(commands)
        commands += [self._event_call.pack(report.claim.job_id, report.args()) for report in reports]
        commands += [self._settle(items) for items in groups]
        with tracing.batch("settle", (item.claim.traceparent for items in groups for item in items)):
            replies = await self._link.run(commands) if commands else []
        self._check(replies[:publications])
        settled = publications + len(reports)
        for report, reply in zip(reports, replies[publications:settled], strict=True):
            report.done(reply == 1)
        self._reports = self._reports[len(reports) :]
        self._published, self._ready = ready, []
        for flush in ready:
            for item, outcome, final_due in flush.told:
                item.done(outcome, final_due=final_due)
        if groups:
            self._settling = []
            self._ready = [self._outcomes.recorded(groups, replies[settled:])]

    def _to_report(self) -> list[EventReport]:
        """All reports there are: none may be left behind the settlement of its attempt."""
        void = [report for report in self._reports if not self._valid(report.claim)]
        for report in void:
            report.done(False)
        if void:
            self._reports = [report for report in self._reports if self._valid(report.claim)]
        return list(self._reports)

    def _to_settle(self) -> list[list[Item]]:
        """The next settlements by job; those whose lease has lapsed are fenced here and never sent."""
        taken = self._settling or self._gathered[:_MOST]
        if not self._settling:
            self._gathered = self._gathered[_MOST:]
        self._settling = []
        jobs: dict[str, list[Item]] = {}
        for item in taken:
            if self._valid(item.claim):
                self._settling.append(item)
                claim = item.claim
                # Two attempts at one task job are settled one by one: only one of them can own the job.
                key = claim.job_id if claim.queued is None else f"{claim.job_id}/{claim.token}"
                if key in jobs:
                    jobs[key].append(item)
                else:
                    jobs[key] = [item]
            else:
                item.done("fenced")
        return list(jobs.values())

    def _settle(self, items: list[Item]) -> Command:
        if items[0].claim.queued is not None:
            return self._settle_task(items[0])
        args: list[Any] = []
        for item in items:
            claim, verdict = item.claim, item.verdict
            task = claim.task
            args += (task.resource_index, task.resource_id, claim.token, verdict.kind, verdict.error, verdict.detail)
        return self._calls[self._finalizes(task.job_type)].pack(task.job_id, args)

    def _settle_task(self, item: Item) -> Command:
        """The call of `task_settle`."""
        claim, verdict = item.claim, item.verdict
        if verdict.kind == "o":
            value, data = item.result or b"null", b'{"attempts":%d}' % verdict.attempts
        else:
            value = verdict.error
            data = verdict.error if verdict.kind == "f" else verdict.detail
        args = (claim.token, "worker.settle", verdict.kind, value, data, self._ttl_s, DEFERRED_EVERY_MS)
        return self._task_call.pack(claim.job_id, args)

    def _check(self, replies: list[Any]) -> None:
        """A publication that Redis refuses is tried until it does not: nothing is acknowledged before."""
        for reply in replies:
            if is_error(reply) and not lacks_group(reply):
                _log.error("lane_publication_refused", error=str(reply))
                raise PipeLost(str(reply))


def _notes(groups: list[list[Item]]) -> list[Command]:
    """Notes first that the ends of task jobs are to be published: one command, where each script would take its own."""
    ends = [item.claim.job_id for items in groups for item in items if _is_end(item)]
    return [command(scripts.NOTE, [keys.UNPUBLISHED], ends)] if ends else []


def _is_end(item: Item) -> bool:
    return item.claim.queued is not None and item.verdict.kind in {"o", "f"}
