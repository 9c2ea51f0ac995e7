"""A worker as a process of its own: `python -m tests.worker.worker_process config.binpb`."""

import asyncio
import sys
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import seconds
from kernel.service.resources import Resources
from kernel.telemetry import logs
from worker_svc import bootstrap


async def main(config: Config) -> None:
    logs.configure("worker", "debug")
    resources = await Resources.open(config)
    try:
        service = await bootstrap.build(config, resources)
        await service.run_until_signal(seconds(config.worker.drain_grace))
    finally:
        await resources.close()


if __name__ == "__main__":
    asyncio.run(main(Config.FromString(Path(sys.argv[1]).read_bytes())))
