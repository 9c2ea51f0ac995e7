"""StreamJobLogs: the log of one job, replayed from `jobs.logs`.

Without `since_offset` the replay starts at the ledger's cursor, which lies just before the job's first line. A plain
replay ends with the newest entry there was when it began; `follow` goes on until the job has ended and a moment more,
since a worker first settles and then publishes what it has to say.
"""

from collections.abc import AsyncIterator, Callable

from fetchbox.jobs.jobs_pb2 import JobLog, LogLevel
from fetchbox.operator.v1 import job_pb2
from kernel import redaction
from kernel.errors import Violation, invalid
from kernel.ledger import JobRecord, Ledger
from kernel.ledger.base import TERMINAL
from kernel.log.offsets import MAX_SEQ, entry_id, parse_id
from kernel.log.topics import Received, Topic
from kernel.watch import Feed, FellBehindError, Subscription
from operator_svc import jobs
from operator_svc.times import timestamp

BATCH = 500
LINGER_SECONDS = 1.0
"""The silence after its end after which a followed log counts as complete."""
_LATE_MS = 3_600_000
"""How long after the end of a job its lines may still come: attempts of a canceled job run until their deadline."""

Line = Received[JobLog]


class JobLogs:
    """Everyone who reads a job's log in this process."""

    def __init__(
        self, ledger: Ledger, topic: Topic[JobLog], feed: Feed[Line], linger_seconds: float = LINGER_SECONDS
    ) -> None:
        self._ledger = ledger
        self._topic = topic
        self._feed = feed
        self._linger = linger_seconds

    async def stream(
        self, job_id: str, since_offset: int | None, drop: Callable[[], None], *, follow: bool
    ) -> AsyncIterator[job_pb2.LogEntry]:
        """The lines after `since_offset`, or all; `drop` ends a client that does not read. Raises `NOT_FOUND`."""
        record = await jobs.require(self._ledger, job_id)
        reader = _Reader(record, self._topic, _start(record, since_offset))
        end = await reader.newest()
        async for entry in reader.past(_bounded(record, end)):
            yield entry
        if follow:
            with self._feed.subscribe(str(reader.partition), reader.place, drop, reader.is_own) as live:
                async for entry in self._live(reader, live):
                    yield entry

    async def _live(self, reader: "_Reader", live: Subscription[Line]) -> AsyncIterator[job_pb2.LogEntry]:
        behind, ended = True, False
        while True:
            if behind:
                async for entry in reader.past(await reader.newest()):
                    yield entry
            try:
                line, behind = await live.get(self._linger), False
            except FellBehindError:
                behind = True
                continue
            if line is not None and reader.passes(line):
                yield shown(line)
            elif line is None:
                if ended:
                    return
                record = await self._ledger.get(reader.job_id)
                ended = record is None or record.status in TERMINAL


class _Reader:
    """One client's place in its partition."""

    def __init__(self, record: JobRecord, topic: Topic[JobLog], place: str) -> None:
        self.job_id = record.job_id
        self.partition = topic.partition_of(record.job_id)
        self.place = place
        self._topic = topic

    async def newest(self) -> str:
        """The id of the partition's newest entry."""
        return await self._topic.last(self.partition)

    def is_own(self, line: Line) -> bool:
        """Whether a line of the partition is about this job."""
        return line.message.job_id == self.job_id

    def passes(self, line: Line) -> bool:
        """Whether a line is new here; the place moves on behind it."""
        if parse_id(line.id) <= parse_id(self.place):
            return False
        self.place = line.id
        return True

    async def past(self, end: str) -> AsyncIterator[job_pb2.LogEntry]:
        """The job's lines up to and including `end`, batch by batch."""
        while parse_id(self.place) < parse_id(end):
            batch = await self._topic.read(self.partition, self.place, BATCH)
            for line in batch:
                if parse_id(line.id) > parse_id(end):
                    return
                self.place = line.id
                if self.is_own(line):
                    yield shown(line)
            if len(batch) < BATCH:
                return


def shown(line: Line) -> job_pb2.LogEntry:
    """A line without its secrets."""
    log = line.message
    return job_pb2.LogEntry(
        offset=line.offset,
        job_id=log.job_id,
        resource_id=log.resource_id,
        level=level(log.level),
        message=redaction.text(log.message),
        fields=redaction.fields(log.fields),
        time=timestamp(log.timestamp_ms),
        trace_id=log.trace_id,
        event="log",
    )


def level(value: LogLevel.ValueType) -> str:
    """`warn` of `LOG_LEVEL_WARN`; `info` for a level that is none of ours."""
    if value not in LogLevel.values():
        return "info"
    return LogLevel.Name(value).removeprefix("LOG_LEVEL_").lower()


def _start(record: JobRecord, since_offset: int | None) -> str:
    try:
        return entry_id(record.log_offset if since_offset is None else since_offset)
    except ValueError as error:
        raise invalid(str(error), [Violation("since_offset", "must be an offset of a log entry")]) from error


def _bounded(record: JobRecord, end: str) -> str:
    """`end`, or for a job that ended long ago the place behind which it has no lines: others' are not read in vain."""
    if record.status not in TERMINAL:
        return end
    latest = (record.updated_ms + _LATE_MS, MAX_SEQ)
    return min(end, f"{latest[0]}-{latest[1]}", key=parse_id)
