"""An exporter on real servers, and what it has brought into the lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import pyarrow.parquet as pq

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import JobStatus
from kernel.log.exported import Exported
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.service.resources import Resources
from pipeline.bootstrap import wired
from pipeline.export.chain import Chain
from pipeline.export.exporter import Exporter
from pipeline.export.publishing import LakePublisher
from pipeline.export.streams import ExportStreamSource
from pipeline.lake.epochs import Marker
from pipeline.lake.store import LakeStore
from pipeline.tables import BY_NAME, STATUS

STREAM: Final = keys.stream(keys.STATUS, 0)
DAY: Final = 86_400_000
NOON: Final = 20_000 * DAY + DAY // 2
"""Some noon, long ago."""


@dataclass
class Rig:
    """Exporters of `config`; what a test does with the stream, it does with the first partition of `jobs.status`."""

    config: Config
    resources: Resources

    @property
    def lake(self) -> LakeStore:
        return LakeStore(self.resources.objects, self.config)

    def chain(self, table: str = "status") -> Chain:
        """One more exporter of one partition, which knows nothing."""
        source = ExportStreamSource(self.resources.redis, BY_NAME[table], 0)
        return Chain(source, self.lake, self.config.exporter)

    def exporter(self) -> Exporter:
        """One more exporter of everything, which knows nothing."""
        return wired(self.config, self.resources)[1]

    def partition(self) -> Exporter:
        """One that has only this partition."""
        chain = self.chain()
        publisher = LakePublisher([chain], Exported(self.resources.redis, 60_000))
        return Exporter(self.resources.redis, [chain], publisher, self.config.exporter)

    async def add(self, count: int, first: int = 0) -> list[str]:
        """Entries of now; their ids."""
        batch = self.resources.redis.commands.pipeline(transaction=False)
        for number in range(first, first + count):
            batch.execute_command("XADD", STREAM, "*", "payload", status(number))
        return [entry.decode() for entry in await batch.execute()]

    async def add_at(self, ids: Iterable[str]) -> list[str]:
        """Entries of their own ids."""
        batch = self.resources.redis.commands.pipeline(transaction=False)
        for number, entry in enumerate(ids):
            batch.execute_command("XADD", STREAM, entry, "payload", status(number))
        return [entry.decode() for entry in await batch.execute()]

    async def say(self, *command: str | bytes | int) -> object:
        """One command to Redis."""
        return await self.resources.redis.commands.execute_command(*command)

    async def exported(self, epoch: int | None = None, kind: str = "raw") -> list[str]:
        """The ids of all rows of the stream in the lake, in order, as often as they are there."""
        found: list[str] = []
        for stored in await self.lake.segments("status", kind=kind):
            if epoch in {None, stored.segment.epoch}:
                body = await self.resources.objects.get(self.lake.bucket, stored.key)
                assert body is not None
                found += pq.read_table(BytesIO(body)).column("entry_id").to_pylist()
        return sorted(found, key=parse_id)

    async def markers(self) -> list[Marker]:
        return await self.lake.markers("status")

    async def bodies(self) -> dict[str, bytes | None]:
        """Every segment, byte by byte."""
        stored = await self.lake.segments("status")
        return {one.key: await self.resources.objects.get(self.lake.bucket, one.key) for one in stored}


async def drained(chain: Chain) -> Chain:
    """After everything there was, and no step too many."""
    for _ in range(500):
        if not await chain.step():
            return chain
    raise AssertionError("the chain does not come to an end")


def status(number: int) -> bytes:
    """A status of a job, unlike any other."""
    return JobStatus(job_id=f"job-{number}", resources_total=number, timestamp_ms=number).SerializeToString()


def twice(ids: Iterable[str]) -> list[str]:
    """Those that are there more than once."""
    return [one for one, count in Counter(ids).items() if count > 1]


__all__ = ["DAY", "NOON", "STATUS", "STREAM", "Rig", "drained", "status", "twice"]
