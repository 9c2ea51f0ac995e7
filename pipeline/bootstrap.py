"""The composition root of the role `exporter`: the only place of the pipeline's services that reads the configuration.

It needs the extra `export`, and imports it: who only wants to know whether it is there asks `pipeline.extras`.
"""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import millis, seconds
from kernel.garbage import collect_seldom
from kernel.ledger import Ledger
from kernel.log.exported import Exported
from kernel.log.shapes import shapes
from kernel.log.topics import provision
from kernel.queue.labels import configure_labels
from kernel.service.resources import Resources
from kernel.service.service import Duty, Periodic, Service
from pipeline.export.chain import Chain
from pipeline.export.exporter import Exporter, Progress
from pipeline.export.flows_source import FlowsSource
from pipeline.export.ledger import LedgerExport
from pipeline.export.publishing import INTERVAL, LakePublisher
from pipeline.export.source import ExportSource
from pipeline.export.streams import stream_sources
from pipeline.lake.store import LakeStore

_LEDGER_SECONDS = 60.0
"""How late the snapshot of a turn may begin."""


async def build(config: Config, resources: Resources) -> Service:
    """The service, not yet started. The streams exist afterwards; FAILED_PRECONDITION as `provision` has it."""
    configure_labels(config)
    await provision(resources.redis, config)
    publisher, exporter = wired(config, resources)
    bucket = _LakeBucket(config, resources)

    async def turn() -> None:
        await bucket.ensure()
        await exporter.turn()

    duties: list[Duty] = [
        Periodic("exporter", seconds(config.exporter.poll_interval), turn, resources.clock),
        Periodic("exporter-positions", INTERVAL, publisher.publish, resources.clock),
    ]
    if snapshots := _snapshots(config, resources):

        async def snapshot() -> None:
            await bucket.ensure()
            await snapshots.turn()

        pause = min(_LEDGER_SECONDS, seconds(config.exporter.ledger_interval))
        duties.append(Periodic("exporter-ledger", pause, snapshot, resources.clock))
    return Service("exporter", duties)


async def finish(config: Config, resources: Resources, progress: Progress) -> int:
    """Brings everything up to now into the lake; how many entries that were. Raises as `build` and `UNAVAILABLE`."""
    configure_labels(config)
    await provision(resources.redis, config)
    await _LakeBucket(config, resources).ensure()
    exporter = wired(config, resources)[1]
    collect_seldom()
    count = await exporter.finish(progress)
    # Entries are in the lake by now, whatever becomes of the snapshot.
    if snapshots := _snapshots(config, resources):
        await snapshots.turn()
    return count


def wired(config: Config, resources: Resources) -> tuple[LakePublisher, Exporter]:
    """The exporter with all its sources, and what tells how far it has come."""
    lake, redis = LakeStore(resources.objects, config), resources.redis
    sources: list[ExportSource] = [*stream_sources(redis, shapes(config)), FlowsSource(redis, config)]
    chains = [Chain(source, lake, config.exporter) for source in sources]
    publisher = LakePublisher(chains, Exported(redis, millis(config.exporter.hold)))
    return publisher, Exporter(redis, chains, publisher, config.exporter)


def _snapshots(config: Config, resources: Resources) -> LedgerExport | None:
    """What writes snapshots of the ledger; None where they are not wanted."""
    interval = millis(config.exporter.ledger_interval)
    if not interval:
        return None
    lake, redis = LakeStore(resources.objects, config), resources.redis
    return LedgerExport(redis, Ledger(redis, config), lake, interval)


class _LakeBucket:
    """The bucket of the lake, made once, as soon as the object store is there."""

    def __init__(self, config: Config, resources: Resources) -> None:
        self._objects = resources.objects
        self._bucket = LakeStore(resources.objects, config).bucket
        self._is_made = False

    async def ensure(self) -> None:
        """Makes the bucket unless it was found to be there. Raises ObjectStoreError."""
        if not self._is_made:
            await self._objects.ensure_bucket(self._bucket)
            self._is_made = True
