"""From delivered entries to claims: one `start` a job for a whole batch, and what does not come out of it.

Settled and overtaken work is acknowledged after its publications were repeated; what cannot be read, has expired or
keeps killing its processes is settled here; the rest is to be run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

import orjson

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask
from kernel.durations import millis
from kernel.ledger.base import start_keys
from kernel.ledger.record import error_json
from kernel.queue.streams.calls import JobCall
from kernel.queue.streams.deferring import Deferring
from kernel.queue.streams.entry import QueueEntry, claimed, download, queued_task, token
from kernel.queue.streams.item import Item
from kernel.queue.streams.outcomes import Outcomes
from kernel.queue.streams.publications import Flush, JobSnapshot, Publisher, carry
from kernel.queue.streams.settler import Settler
from kernel.queue.streams.task_outcomes import TaskOutcomes
from kernel.queue.streams.task_starter import TaskStarter
from kernel.queue.work.retry import Verdict
from kernel.queue.work.types import Claim
from kernel.redis import keys, scripts
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger(__name__)


class Starter:
    """Starts batches."""

    def __init__(
        self,
        link: Link,
        config: config_pb2.Config,
        worker: str,
        publisher: Publisher,
        outcomes: Outcomes,
        task_outcomes: TaskOutcomes,
        settler: Settler,
        finalizes: Callable[[str], bool],
        remote: Collection[str],
        deferring: Deferring,
        *,
        slots: bool = True,
    ) -> None:
        """`remote`: the tasks whose jobs are kept for remote workers. Without `slots` those of all tasks are."""
        self.routed = asyncio.Event()
        """Set when a task was put aside; whoever waits for it clears it."""
        self._slots = slots
        self._link = link
        self._deferring = deferring
        self._worker = worker
        self._remote = remote
        self._task_outcomes = task_outcomes
        self._tasks = TaskStarter(config, worker, task_outcomes)
        self._publisher = publisher
        self._outcomes = outcomes
        self._settler = settler
        self._finalizes = finalizes
        self._calls = [JobCall(scripts.START, start_keys, (worker, "worker.claim", final)) for final in ("0", "1")]
        self._crash_limit = config.worker.crash_limit
        self._keep_ms = millis(config.streams.tasks.retention)

    async def start(self, entries: Sequence[QueueEntry], epoch: int, *, routed: bool = False) -> list[Claim]:
        """The claims among the entries. Raises `PipeLost` where it is to be repeated with the same entries.

        `routed`: they were put aside for a worker elsewhere, and it is here.
        """
        flush = Flush()
        readable = [entry for entry in entries if self._is_readable(flush, entry)]
        claims: list[Claim] = []
        try:
            admitted = await self._deferring.admitted(flush, readable)
            claims = await self._begun(flush, admitted, epoch, routed=routed)
        finally:
            begun = {(claim.partition, claim.entry) for claim in claims}
            self._deferring.release(entry for entry in readable if (entry.partition, entry.id) not in begun)
        return claims

    async def _begun(self, flush: Flush, entries: Sequence[QueueEntry], epoch: int, *, routed: bool) -> list[Claim]:
        made = Flush()
        groups, tasks, away = self._sorted(entries, routed=routed)
        commands = [self._command(group) for group in groups]
        commands += [self._tasks.command(entry) for entry in tasks]
        commands += self._route(away)
        replies = await self._link.run(commands) if commands else []
        if away:
            self.routed.set()
        claims: list[Claim] = []
        for group, reply in zip(groups, replies, strict=False):
            claims += self._started(flush, made, group, reply, epoch)
        for entry, reply in zip(tasks, replies[len(groups) :], strict=False):
            try:
                claims += self._task_started(flush, made, entry, reply, epoch)
            except Exception as error:  # noqa: BLE001 - the record of one job, whoever wrote it, must not stop the lane
                _log.exception("task_start_broken", error)
                self._bury(flush, entry, "SYSTEM_INTERNAL", "the job's record holds what cannot be")
        if flush.acknowledged or flush.removed or flush.streams or flush.parked:
            self._settler.publish(flush)
        if made.indexed:  # before the work begins, so that a job whose first task takes hours can be seen
            await self._link.run(made.commands())
        return claims

    def _is_readable(self, flush: Flush, entry: QueueEntry) -> bool:
        """Whether an entry can be run; one that cannot is buried."""
        fault = entry.decode()
        if fault:
            self._bury(flush, entry, fault, "the entry is no task that can be run")
        return not fault

    def _sorted(
        self, entries: Sequence[QueueEntry], *, routed: bool
    ) -> tuple[list[list[QueueEntry]], list[QueueEntry], list[QueueEntry]]:
        """Resources by job, task jobs to start, and those to put aside."""
        jobs: dict[str, list[QueueEntry]] = {}
        tasks: list[QueueEntry] = []
        away: list[QueueEntry] = []
        for entry in entries:
            if isinstance(entry.work, DownloadTask):
                jobs.setdefault(entry.work.job_id, []).append(entry)
            else:
                (tasks if routed or self._is_here(entry) else away).append(entry)
        return list(jobs.values()), tasks, away

    def _route(self, entries: Sequence[QueueEntry]) -> list[Command]:
        """Puts tasks aside that only workers elsewhere run, or only workers that have slots."""
        if not entries:
            return []
        args = [part for entry in entries for part in (entry.id, self._aside(queued_task(entry).task))]
        return [command(scripts.ROUTE, [keys.QUEUE], [keys.GROUP_WORKERS, self._worker, *args])]

    def _is_here(self, entry: QueueEntry) -> bool:
        """Whether a task is not to be put aside; one that must not run again is settled by whoever reads it."""
        return entry.crashes >= self._crash_limit or (self._slots and queued_task(entry).task not in self._remote)

    def _aside(self, task: str) -> str:
        """Under which consumer a task is put aside."""
        return keys.routed(task) if task in self._remote else keys.SLOTS

    def _task_started(self, flush: Flush, made: Flush, entry: QueueEntry, reply: Any, epoch: int) -> list[Claim]:
        if is_error(reply):
            self._bury(flush, entry, "SYSTEM_INTERNAL", f"the job's record cannot be read: {reply}")
        elif reply[0] != -1:
            claim = self._tasks.started(flush, made, entry, reply, epoch)
            if claim is not None and not self._doomed(entry, claim, reply[1]):
                return [claim]
        elif entry.ledgered:  # it has ended and expired, and its acknowledgement was lost
            self._task_outcomes.forget(flush, entry)
            metrics.TASKS.labels(outcome="absorbed").inc()
        else:
            self._bury(flush, entry, "SYSTEM_EXPIRED", "the job has no record (any more)")
        return []

    def _command(self, group: Sequence[QueueEntry]) -> Command:
        args: list[Any] = [b""]
        for entry in group:
            task = download(entry)
            args += (task.resource_index, task.resource_id, token(entry))
            if not entry.ledgered:
                args[0] = _record(group)
        return self._calls[self._finalizes(task.job_type)].pack(task.job_id, args)

    def _started(self, flush: Flush, made: Flush, group: Sequence[QueueEntry], reply: Any, epoch: int) -> list[Claim]:
        if is_error(reply):
            for entry in group:
                self._bury(flush, entry, "SYSTEM_INTERNAL", f"the job's record cannot be read: {reply}")
            return []
        if reply[0] == b"gone":
            self._outcomes.absorbed(flush, group)
            return []
        now_ms, about, *verdicts = reply
        claims: list[Claim] = []
        settled: list[tuple[QueueEntry, Any]] = []
        for entry, verdict in zip(group, verdicts, strict=True):
            if isinstance(verdict, int) and verdict > 0:
                claim = claimed(entry, verdict, epoch)
                if not self._doomed(entry, claim, now_ms):
                    claims.append(claim)
            else:
                settled.append((entry, verdict))
        if about is not None:
            job = JobSnapshot.of(download(group[0]), about, self._publisher.bucket)
            if settled:
                self._outcomes.repeated(flush, job, settled)
            if claims and job.direct:
                self._publisher.index(made, job)
        return claims

    def _doomed(self, entry: QueueEntry, claim: Claim, now_ms: int) -> bool:
        """Settles what must not run (again) as failed. The queue has no retention that a task could outlive."""
        attempts = claim.attempt
        if entry.crashes >= self._crash_limit:
            code, message = "SYSTEM_CRASH_LOOP", f"the task has lost its process {entry.crashes} times"
            attempts += entry.crashes  # each of them was an attempt
        elif entry.lost and entry.ledgered and not entry.queued:
            code, message = "SYSTEM_ENTRY_LOST", "the entry of the resource was deleted, and its task is not stored"
        elif now_ms - entry.ms > self._keep_ms and not entry.queued:
            code, message = "SYSTEM_EXPIRED", "the task outlived the retention of its stream"
        else:
            return False
        error = error_json(code, message, attempts=attempts)
        line = b"" if entry.queued else _line(claim.resource_id, code, message, attempts)
        self._settler.add(Item(claim, Verdict("f", attempts, error, line), code, message))
        return True

    def _bury(self, flush: Flush, entry: QueueEntry, code: str, message: str) -> None:
        """A dead letter of what has no job that could be settled; its bytes are kept as they are."""
        letter = DeadLetterTask(
            failure_code=code,
            failure_message=message,
            attempts=entry.attempts,
            failed_at_ms=entry.ms,
            id=f"{entry.lane}/{entry.id}",
        )
        if code == "VALIDATION_UNDECODABLE":
            letter.undecodable = entry.raw()
            metrics.UNDECODABLE.labels(topic=keys.QUEUE if entry.queued else keys.TASKS).inc()
        elif entry.work is not None:
            carry(letter, entry.work)
        self._publisher.letter(flush, letter.id, letter.SerializeToString())
        metrics.DEAD_LETTERS.labels(code=metrics.code(code)).inc()
        if entry.queued:
            self._task_outcomes.forget(flush, entry)
        else:
            flush.acknowledge(entry.lane, entry.id)


def _record(group: Sequence[QueueEntry]) -> bytes:
    """What a record is made of where ingest has made none; empty for a replay, which needs one that is there."""
    tasks = [download(entry) for entry in group]
    if all(task.replay for task in tasks):
        return b""
    first = tasks[0]
    return orjson.dumps(
        {
            "job_type": first.job_type,
            "tenant": first.tenant,
            "total": max(task.resources_total for task in tasks),
            "manifest_key": first.manifest_key,
            "trace_id": first.trace_id,
        }
    )


def _line(resource_id: str, code: str, message: str, attempts: int) -> bytes:
    """What `results.jsonl` says of a resource that never ran again."""
    failure = {"state": "failed", "attempts": attempts, "error_code": code, "error_message": message}
    return orjson.dumps({"resource_id": resource_id, **failure})
