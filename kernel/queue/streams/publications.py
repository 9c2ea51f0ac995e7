"""What a settlement makes known: status, logs, dead letters and indexes, gathered over a flush into few commands."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache

import orjson

from fetchbox.config.v1 import config_pb2
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus, LogLevel, QueuedTask
from kernel.ledger.base import TERMINAL
from kernel.ledger.record import error_of, job_state, log_offset, manifest_key
from kernel.queue.streams.item import Item
from kernel.redis import keys, scripts
from kernel.redis.link import command
from kernel.redis.pipe import Command
from kernel.telemetry import metrics

_DEADLY = frozenset({"SYSTEM_CRASH_LOOP", "SYSTEM_EXPIRED"})


@dataclass(slots=True)
class JobSnapshot:
    """How a job stands, as the `start` and `settle` scripts tell."""

    job_id: str
    job_type: str
    tenant: str
    manifest_key: str
    status: str
    fin: str
    completed: int
    failed: int
    total: int
    revision: int
    updated_ms: int
    created_ms: int
    log_offset: int
    error: bytes
    direct: bool

    @classmethod
    def of(cls, task: DownloadTask, reply: list[bytes | int], bucket: str) -> JobSnapshot:
        """From the head of a script's reply and any task of the job."""
        status, fin, completed, failed, total, revision, updated, created, offset, error, direct = reply[:11]
        known = task.manifest_key or ("" if direct else manifest_key(bucket, task.job_type, task.job_id))
        return cls(
            task.job_id,
            task.job_type,
            task.tenant,
            known,
            status.decode(),  # type: ignore[union-attr]  # the shape of the reply
            fin.decode(),  # type: ignore[union-attr]  # the shape of the reply
            completed,  # type: ignore[arg-type]  # the shape of the reply
            failed,  # type: ignore[arg-type]  # the shape of the reply
            total,  # type: ignore[arg-type]  # the shape of the reply
            revision,  # type: ignore[arg-type]  # the shape of the reply
            updated,  # type: ignore[arg-type]  # the shape of the reply
            created,  # type: ignore[arg-type]  # the shape of the reply
            int(offset or 0) or log_offset(int(created)),
            error,  # type: ignore[arg-type]  # the shape of the reply
            bool(direct),
        )

    @property
    def ended(self) -> bool:
        """Whether the job is in a terminal state."""
        return self.status in TERMINAL

    def message(self) -> bytes:
        """The entry of `jobs.status`."""
        own = JobStatus(
            job_id=self.job_id,
            resources_total=self.total,
            resources_completed=self.completed,
            manifest_key=self.manifest_key,
            log_offset=self.log_offset,
            timestamp_ms=self.updated_ms,
            revision=self.revision,
        )
        if self.failed or self.error:
            own.resources_failed = self.failed
            own.last_error_code, own.last_error_message = error_of(self.error)
        return common_status(self.job_type, self.tenant, self.status) + own.SerializeToString()


@lru_cache(256)
def common_status(job_type: str, tenant: str, status: str) -> bytes:
    """What many jobs have in common: serialized messages one behind the other are one message."""
    return JobStatus(job_type=job_type, tenant=tenant, state=job_state(status)).SerializeToString()


def log_line(
    task: DownloadTask | QueuedTask, level: LogLevel.ValueType, text: str, at_ms: int, fields: dict[str, str]
) -> bytes:
    """One entry of `jobs.logs`."""
    return JobLog(level=level, message=text, fields=fields).SerializeToString() + _line_of(task, at_ms)


def completed_line(task: DownloadTask | QueuedTask, at_ms: int, attempt: int, began_ms: int = 0) -> bytes:
    """The entry of `jobs.logs` for work that is done and has none of its own; `began_ms` is 0 where it is not known."""
    return _completed(attempt) + _duration(began_ms, at_ms) + _line_of(task, at_ms)


@lru_cache(64)
def _completed(attempt: int) -> bytes:
    fields = {"attempt": str(attempt), "outcome": "done"}
    return JobLog(level=LogLevel.LOG_LEVEL_INFO, message="completed", fields=fields).SerializeToString()


def failed_line(task: DownloadTask | QueuedTask, at_ms: int, error: bytes, began_ms: int = 0) -> bytes:
    """The entry of `jobs.logs` for work that failed for good and has none of its own, by what the record keeps."""
    code, message = error_of(error)
    fields = {"attempt": str(_attempts(error)), "code": code, "outcome": "failed", **_lasted(began_ms, at_ms)}
    return log_line(task, LogLevel.LOG_LEVEL_ERROR, message, at_ms, fields)


def put_off_line(item: Item, at_ms: int) -> bytes:
    """The entry of `jobs.logs` for work that is done again later and has none of its own; a deferral is no attempt."""
    verdict, claim = item.verdict, item.claim
    fields = {"code": item.code, "delay_ms": str(verdict.delay_ms)}
    if verdict.kind == "r":
        fields |= {"attempt": str(verdict.attempts), "outcome": "retry", **_lasted(claim.began_ms, at_ms)}
    return log_line(claim.queued or claim.task, LogLevel.LOG_LEVEL_WARN, item.message, at_ms, fields)


def _duration(began_ms: int, at_ms: int) -> bytes:
    lasted = _lasted(began_ms, at_ms)
    return JobLog(fields=lasted).SerializeToString() if lasted else b""


def _lasted(began_ms: int, at_ms: int) -> dict[str, str]:
    return {"duration_ms": str(max(0, at_ms - began_ms))} if began_ms else {}


def _line_of(task: DownloadTask | QueuedTask, at_ms: int) -> bytes:
    line = JobLog(job_id=task.job_id, timestamp_ms=at_ms)
    if isinstance(task, DownloadTask):
        line.resource_id = task.resource_id
    if task.trace_id:
        line.trace_id = task.trace_id
    return line.SerializeToString()


def dead_letter(task: DownloadTask | QueuedTask, error: bytes, at_ms: int) -> bytes:
    """The entry of `jobs.dlq` for a failure as the record keeps it."""
    code, text = error_of(error)
    letter = DeadLetterTask(
        failure_code=code, failure_message=text, attempts=_attempts(error), failed_at_ms=at_ms, id=letter_id(task)
    )
    carry(letter, task)
    return letter.SerializeToString()


def is_dead(work: object, code: str) -> bool:
    """Whether a failure for good becomes a dead letter.

    That of an attempt at a step of a flow does not: its flow makes the next attempt, or fails itself and says why. But
    operators are to see what kills its processes.
    """
    return not isinstance(work, QueuedTask) or not work.flow or code in _DEADLY


def letter_id(task: DownloadTask | QueuedTask) -> str:
    """The id of the dead letter of a task; the same each time."""
    resource_id = task.resource_id if isinstance(task, DownloadTask) else ""
    return f"{task.job_id}/{resource_id}/{task.replay}"


def carry(letter: DeadLetterTask, task: DownloadTask | QueuedTask) -> None:
    """Puts the task into its letter."""
    if isinstance(task, DownloadTask):
        letter.task.CopyFrom(task)
    else:
        letter.queued_task.CopyFrom(task)


def _attempts(error: bytes) -> int:
    try:
        return int(orjson.loads(error).get("attempts", 0))
    except (orjson.JSONDecodeError, AttributeError, ValueError):
        return 0


@dataclass(slots=True)
class Flush:
    """Everything that one flush publishes, and what may be acknowledged afterwards."""

    streams: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    ended: list[str | int] = field(default_factory=list)
    opened: list[str | int] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    indexed: list[str | int] = field(default_factory=list)
    expiring: list[str | int] = field(default_factory=list)
    finals: dict[str, list[str | int]] = field(default_factory=lambda: defaultdict(list))
    parked: dict[str, list[str | int]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    removed: list[str] = field(default_factory=list)
    """Entries of the queue, each followed by its task where its creation counted it, else by nothing."""
    published: list[str] = field(default_factory=list)
    """Jobs whose end this flush publishes: the notes of it are taken back with the acknowledgements."""
    jobs_ended: list[tuple[str, str]] = field(default_factory=list)
    """Type and status of each job that ended, for the counters."""
    told: list[tuple[Item, str, bool]] = field(default_factory=list)
    """What the workers are told once the publications are in Redis."""

    def commands(self) -> list[Command]:
        """The publications. They may be repeated: entries of streams are at-least-once, the rest is idempotent."""
        made: list[Command] = [command(scripts.APPEND, [name], payloads) for name, payloads in self.streams.items()]
        if self.indexed:
            made.append(command(scripts.INDEX, [keys.job_index()], ["NX", *self.indexed]))
        if self.expiring:
            made.append(command(scripts.INDEX, [keys.expiring_index()], ["NX", *self.expiring]))
        if self.opened:
            made.append(command(scripts.INDEX, [keys.open_index()], ["CH", *self.opened]))
        if self.ended:
            made.append(command(scripts.INDEX, [keys.ended_index()], ["CH", *self.ended]))
        if self.closed:
            made.append(("ZREM", keys.open_index(), *self.closed))
        for lane, due in self.finals.items():
            made.append(command(scripts.INDEX, [keys.finals(lane)], ["NX", *due]))
        for lane, items in self.parked.items():
            names = [lane, keys.redo(lane), keys.delayed(lane)]
            made.append(command(scripts.PARK, names, [keys.GROUP_WORKERS, *items]))
        return made

    def acknowledge(self, lane: str, entry: str, counted: str = "") -> None:
        """What is to be acknowledged, once all else is in Redis; `counted` is the task of a counted queue entry."""
        if lane == keys.QUEUE:
            self.removed += (entry, counted)
        else:
            self.acknowledged[lane].append(entry)

    def held(self) -> set[tuple[str, str]]:
        """Lane and entry of all that is still to be parked or acknowledged."""
        found = {(lane, entry) for lane, entries in self.acknowledged.items() for entry in entries}
        found |= {(lane, str(entry)) for lane, items in self.parked.items() for entry in items[1::5]}
        return found | {(keys.QUEUE, entry) for entry in self.removed[::2]}

    def acknowledgements(self) -> list[Command]:
        """What comes last."""
        made = [
            command(scripts.ACKNOWLEDGE, [lane, keys.redo(lane), keys.delayed(lane)], [keys.GROUP_WORKERS, *entries])
            for lane, entries in self.acknowledged.items()
        ]
        if self.removed:
            made.append(command(scripts.TASK_ACKNOWLEDGE, keys.QUEUE_PLACES, [keys.GROUP_WORKERS, *self.removed]))
        if self.published:
            made.append(("ZREM", keys.UNPUBLISHED, *self.published))
        return made


def park(flush: Flush, item: Item, lane: str, consumer: str) -> None:
    """Puts the entry of work that is done again aside until it is due, and counts an attempt that failed."""
    claim, verdict = item.claim, item.verdict
    holder = keys.solo(consumer) if claim.solo else consumer
    flush.parked[lane] += (holder, claim.entry, verdict.delay_ms, verdict.attempts, claim.crashes)
    if verdict.kind == "r":
        label = metrics.code(item.code)
        metrics.TASK_FAILURES.labels(code=label).inc()
        metrics.RETRIES.labels(code=label).inc()


class Publisher:
    """Knows the streams and puts each message where it belongs."""

    def __init__(self, config: config_pb2.Config) -> None:
        streams = config.streams
        self.bucket = config.object_store.bucket
        self._partitions = streams.tasks.partitions
        self._status = [keys.stream(keys.STATUS, p) for p in range(streams.status.partitions)]
        self._logs = [keys.stream(keys.LOGS, p) for p in range(streams.logs.partitions)]
        self._dlq = [keys.stream(keys.DLQ, p) for p in range(streams.dlq.partitions)]
        self.lanes = [*(keys.stream(keys.TASKS, p) for p in range(self._partitions)), keys.QUEUE]
        self.partition = {lane: partition for partition, lane in enumerate(self.lanes)}

    def status(self, flush: Flush, job: JobSnapshot) -> None:
        """One aggregated status, and what the indexes know of the job."""
        stream = self._status[keys.partition_of(job.job_id, len(self._status))]
        flush.streams[stream].append(job.message())
        self.index(flush, job)

    def task_status(self, flush: Flush, job_id: str, status: bytes) -> None:
        """The status of a task job."""
        flush.streams[self._status[keys.partition_of(job_id, len(self._status))]].append(status)

    def index(self, flush: Flush, job: JobSnapshot) -> None:
        """What the indexes over jobs know of the job."""
        if job.direct:
            flush.indexed += (job.created_ms, job.job_id)
        if job.ended:
            flush.ended += (job.updated_ms, job.job_id)
            if job.direct:
                flush.closed.append(job.job_id)
        elif job.total == 0:
            flush.opened += (job.updated_ms, job.job_id)
        if job.fin == "due":
            lane = self.lanes[keys.partition_of(job.job_id, self._partitions)]
            flush.finals[lane] += (job.updated_ms, job.job_id)

    def log(self, flush: Flush, job_id: str, line: bytes) -> None:
        """One log line."""
        flush.streams[self._logs[keys.partition_of(job_id, len(self._logs))]].append(line)

    def letter(self, flush: Flush, job_id: str, letter: bytes) -> None:
        """One dead letter."""
        flush.streams[self._dlq[keys.partition_of(job_id, len(self._dlq))]].append(letter)
