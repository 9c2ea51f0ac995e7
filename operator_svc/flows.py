"""The duties of this role for flows: retention of runs that have ended, and their indexes."""

from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config
from flows.gates.payloads import Payloads
from flows.journal.archive import Archive
from flows.journal.keeping import Keeping
from flows.journal.run_entries import IndexKeeping
from kernel.durations import millis, seconds
from kernel.log.exported import Exported
from kernel.service.resources import Resources
from kernel.service.service import Duty, Periodic


def duties(config: Config, resources: Resources) -> list[Duty]:
    """Each is harmless beside that of another process."""
    engine, clients, clock = config.flow_engine, resources.redis, resources.clock
    every = seconds(engine.tidy_interval)
    archive = Archive(clients, Path(engine.archive_dir)) if engine.archive_dir else None
    exported = Exported(clients, millis(config.exporter.hold))
    keeping = Keeping(clients, engine, resources.objects, exported, archive)
    payloads = Payloads(clients, resources.objects, engine, clock)
    return [
        Periodic("operator-flows", every, keeping.run, clock),
        Periodic("operator-flow-index", every, IndexKeeping(clients).run, clock),
        Periodic("operator-flow-payloads", every, payloads.tidy, clock),
    ]
