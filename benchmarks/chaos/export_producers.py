"""Who gives the exporter work: producers of all four topics, flow runs, and retention at their heels."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from google.protobuf.message import Message

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from flows.journal.keeping import Keeping
from flows.journal.redis_journal import RedisJournal
from flows.model.kinds import FLOW_ENDS
from flows.model.types import FlowState, RunGoneError
from kernel.durations import millis
from kernel.errors import FetchboxError
from kernel.log.exported import Exported
from kernel.log.shapes import shapes
from kernel.redis import keys
from kernel.service.resources import Resources
from operator_svc.stream_retention import StreamRetention
from pipeline.tables import DLQ, FLOWS, LOGS, STATUS, TASKS
from tests.flows.journal_rig import append_of, begun, end, line, start, whole

JUNK: Final = "junk"
"""The name of all records that cannot be decoded."""
_MESSAGES: Final[Mapping[str, Callable[[str], Message]]] = {
    TASKS.name: lambda name: DownloadTask(job_id=name, resource_id="r", url="http://example.org/"),
    STATUS.name: lambda name: JobStatus(job_id=name, resources_total=1),
    LOGS.name: lambda name: JobLog(job_id=name, message="what happened"),
    DLQ.name: lambda name: DeadLetterTask(id=name, failure_code="DOWNLOAD_DNS"),
}
_BATCH: Final = 8
_RARE: Final = 100
_BATCH_SECONDS: Final = 0.2
_PAUSE: Final = 0.05
_TRIM_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Record:
    """What a producer has an answer for."""

    name: str
    server: int
    """How many servers had been the master by then."""


@dataclass
class Produced:
    """All records by table and partition, then by their key: the id of the entry, for events of runs with the run."""

    accepted: dict[tuple[str, int], dict[str, Record]] = field(default_factory=lambda: defaultdict(dict))
    doubtful: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Names by table that no producer has an answer for: they may be there or not."""

    def __str__(self) -> str:
        """For whoever watches."""
        doubtful = sum(map(len, self.doubtful.values()))
        return f"accepted={sum(map(len, self.accepted.values()))} doubtful={doubtful}"


class Producers:
    """They go on until `records` of the four topics were offered, and longer until `over` is set; with runs beside."""

    def __init__(
        self, config: Config, resources: Resources, server: Callable[[], int], *, records: int, seed: int
    ) -> None:
        self.produced = Produced()
        self.over = asyncio.Event()
        self._config = config
        self._resources = resources
        self._server = server
        self._records = records
        self._offered = 0
        self._random = Random(f"{seed}/producers")

    @property
    def enough(self) -> bool:
        """Whether as many records were offered as there should be."""
        return self._offered >= self._records

    async def run(self) -> None:
        """Returns when there is enough, and all is over."""
        trimming = asyncio.create_task(self._trims())
        try:
            topics = zip(_MESSAGES, shapes(self._config), strict=True)
            await asyncio.gather(*(self._topic(table, shape.streams()) for table, shape in topics), self._flows())
        finally:
            trimming.cancel()
            await asyncio.gather(trimming, return_exceptions=True)

    async def _topic(self, table: str, streams: Sequence[str]) -> None:
        first = 0
        while not (self.enough and self.over.is_set()):
            partition = self._random.randrange(len(streams))
            names = [self._name(table, number) for number in range(first, first + _BATCH)]
            await self._offer(table, partition, streams[partition], names)
            first += _BATCH
            self._offered += _BATCH
            await asyncio.sleep(_BATCH_SECONDS)

    def _name(self, table: str, number: int) -> str:
        return JUNK if self._random.randrange(_RARE) == 0 else f"{table}-{number}"

    async def _offer(self, table: str, partition: int, stream: str, names: Sequence[str]) -> None:
        """Offers each once: what is not answered may be there."""
        server = self._server()
        batch = self._resources.redis.commands.pipeline(transaction=False)
        for name in names:
            payload = b"\xff" if name == JUNK else _MESSAGES[table](name).SerializeToString()
            batch.execute_command("XADD", stream, "*", "payload", payload)
        try:
            ids = await batch.execute()
        except FetchboxError:
            self.produced.doubtful[table] += names
            await asyncio.sleep(_PAUSE)
            return
        for name, entry in zip(names, ids, strict=True):
            self.produced.accepted[table, partition][entry.decode()] = Record(name, server)

    async def _flows(self) -> None:
        journal, number = RedisJournal(self._resources.redis, self._config), 0
        try:
            while not (self.enough and self.over.is_set()):
                await self._run(journal, f"run-{number}")
                number += 1
                await asyncio.sleep(_BATCH_SECONDS)
        finally:
            await journal.close()

    async def _run(self, journal: RedisJournal, flow_id: str) -> None:
        server = self._server()
        try:
            run = await begun(journal, flow_id)
            await journal.append(append_of(run, [start(run)], FlowState(), 0))
            lines = [line(run, f"{number}") for number in range(self._random.randrange(1, 8))]
            await journal.append(append_of(run, lines, FlowState(), None))
            await journal.append(append_of(run, [end(run)], FlowState(), 1))
            events = await whole(journal, run, VIEW_TIMELINE)
        except (FetchboxError, RunGoneError):  # a failover has lost the beginning of it
            events = []
        if not events or events[-1].kind not in FLOW_ENDS:
            self.produced.doubtful[FLOWS.name].append(flow_id)
            return
        for event in events:
            self.produced.accepted[FLOWS.name, 0][f"{flow_id}/{event.id}"] = Record(flow_id, server)

    async def _trims(self) -> None:
        """What the operator and a worker would do: everything is read at once, and little is kept."""
        redis, engine = self._resources.redis, self._config.flow_engine
        exported = Exported(redis, millis(self._config.exporter.hold))
        keeping = Keeping(redis, engine, self._resources.objects, exported)
        passes: list[Callable[[], Awaitable[object]]] = [
            self._settle,
            StreamRetention(redis, self._config).enforce,
            keeping.run,
        ]
        while True:
            for work in passes:
                try:
                    await work()
                except FetchboxError:
                    continue
            await asyncio.sleep(_TRIM_SECONDS)

    async def _settle(self) -> None:
        """Tasks are trimmed once they were read and acknowledged."""
        commands = self._resources.redis.commands
        for stream in shapes(self._config)[0].streams():
            read = await commands.xreadgroup(keys.GROUP_WORKERS, "chaos", {stream: ">"}, count=1000)
            for _, entries in read or ():
                await commands.xack(stream, keys.GROUP_WORKERS, *(entry for entry, _ in entries))
