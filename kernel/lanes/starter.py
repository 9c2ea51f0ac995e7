"""From delivered entries to claims: one `start` a job for a whole batch, and what does not come out of it.

Settled and overtaken work is acknowledged after its publications were repeated; what cannot be read, has expired or
keeps killing its processes is settled here; the rest is to be run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask
from kernel import keys, scripts
from kernel.config import millis
from kernel.lanes.calls import JobCall
from kernel.lanes.entry import Entry, token
from kernel.lanes.item import Item
from kernel.lanes.link import Link, is_error
from kernel.lanes.outcomes import Outcomes
from kernel.lanes.publications import Flush, Publisher, Snapshot
from kernel.lanes.retry import Verdict
from kernel.lanes.settler import Settler
from kernel.lanes.types import Claim
from kernel.ledger.base import job_keys
from kernel.ledger.record import error_json
from kernel.pipe import Command
from kernel.telemetry import metrics


class Starter:
    """Starts batches."""

    def __init__(
        self,
        link: Link,
        config: config_pb2.Config,
        worker: str,
        publisher: Publisher,
        outcomes: Outcomes,
        settler: Settler,
        finalizes: Callable[[str], bool],
    ) -> None:
        self._link = link
        self._publisher = publisher
        self._outcomes = outcomes
        self._settler = settler
        self._finalizes = finalizes
        self._calls = [JobCall(scripts.START, job_keys, (worker, "worker.claim", final)) for final in ("0", "1")]
        self._crash_limit = config.worker.crash_limit
        self._keep_ms = millis(config.streams.tasks.retention)

    async def start(self, entries: Sequence[Entry], epoch: int) -> list[Claim]:
        """The claims among the entries. Raises `PipeLost` where it is to be repeated with the same entries."""
        jobs: dict[str, list[Entry]] = {}
        unreadable: list[tuple[Entry, str]] = []
        for entry in entries:
            fault = entry.decode()
            if fault:
                unreadable.append((entry, fault))
            elif entry.task is not None:
                jobs.setdefault(entry.task.job_id, []).append(entry)
        groups = list(jobs.values())
        replies = await self._link.run([self._command(group) for group in groups]) if groups else []
        flush, made = Flush(), Flush()
        for entry, fault in unreadable:
            self._bury(flush, entry, fault, "the entry is no task that can be run")
        claims: list[Claim] = []
        for group, reply in zip(groups, replies, strict=True):
            claims += self._started(flush, made, group, reply, epoch)
        if flush.acknowledged or flush.streams:
            self._settler.publish(flush)
        if made.indexed:  # before the work begins, so that a job whose first task takes hours can be seen
            await self._link.run(made.commands())
        return claims

    def _command(self, group: Sequence[Entry]) -> Command:
        args: list[Any] = [b""]
        for entry in group:
            task = _task(entry)
            args += (task.resource_index, task.resource_id, token(entry, task))
            if not entry.ledgered:
                args[0] = _record(group)
        return self._calls[self._finalizes(task.job_type)].pack(task.job_id, args)

    def _started(self, flush: Flush, made: Flush, group: Sequence[Entry], reply: Any, epoch: int) -> list[Claim]:
        if is_error(reply):
            for entry in group:
                self._bury(flush, entry, "SYSTEM_INTERNAL", f"the job's record cannot be read: {reply}")
            return []
        if reply[0] == b"gone":
            self._outcomes.absorbed(flush, group)
            return []
        now_ms, about, *verdicts = reply
        claims: list[Claim] = []
        settled: list[tuple[Entry, Any]] = []
        for entry, verdict in zip(group, verdicts, strict=True):
            if isinstance(verdict, int) and verdict > 0:
                claim = self._claim(entry, verdict, epoch)
                if not self._doomed(entry, claim, now_ms):
                    claims.append(claim)
            else:
                settled.append((entry, verdict))
        if about is not None:
            job = Snapshot.of(_task(group[0]), about, self._publisher.bucket)
            if settled:
                self._outcomes.repeated(flush, job, settled)
            if claims and job.direct:
                self._publisher.index(made, job)
        return claims

    def _claim(self, entry: Entry, granted: int, epoch: int) -> Claim:
        return Claim(
            entry.partition,
            entry.id,
            entry.payload,
            _task(entry),
            granted,
            entry.attempts,
            entry.crashes,
            entry.traceparent,
            epoch,
            entry.solo,
        )

    def _doomed(self, entry: Entry, claim: Claim, now_ms: int) -> bool:
        """Settles what must not run (again) as failed."""
        if entry.crashes >= self._crash_limit:
            code, message = "SYSTEM_CRASH_LOOP", f"the task has lost its process {entry.crashes} times"
        elif now_ms - entry.ms > self._keep_ms:
            code, message = "SYSTEM_EXPIRED", "the task outlived the retention of its stream"
        else:
            return False
        error = error_json(code, message, attempts=claim.attempt)
        self._settler.add(Item(claim, Verdict("f", claim.attempt, error), code, message))
        return True

    def _bury(self, flush: Flush, entry: Entry, code: str, message: str) -> None:
        """A dead letter of what has no job that could be settled; its bytes are kept as they are."""
        lane = self._publisher.lanes[entry.partition]
        letter = DeadLetterTask(
            failure_code=code,
            failure_message=message,
            attempts=entry.attempts,
            failed_at_ms=entry.ms,
            id=f"{lane}/{entry.id}",
        )
        if code == "VALIDATION_UNDECODABLE":
            letter.undecodable = entry.payload
            metrics.UNDECODABLE.labels(topic=keys.TASKS).inc()
        elif entry.task is not None:
            letter.task.CopyFrom(entry.task)
        self._publisher.letter(flush, letter.id, letter.SerializeToString())
        metrics.DEAD_LETTERS.labels(code=metrics.code(code)).inc()
        flush.acknowledged[lane].append(entry.id)


def _record(group: Sequence[Entry]) -> bytes:
    """What a record is made of where ingest has made none; empty for a replay, which needs one that is there."""
    tasks = [_task(entry) for entry in group]
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


def _task(entry: Entry) -> DownloadTask:
    assert entry.task is not None  # noqa: S101 - only decoded entries are started
    return entry.task
