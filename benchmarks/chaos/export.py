"""`python -m benchmarks.chaos.export [--seed N] [--records 20000]`: into the lake, while everything is killed.

Three exporters race, and are killed at random, for what producers give to all four topics and to flow runs, with
retention at their heels. The object store answers some requests with an error, and some not at all. Redis is killed,
demoted, replaced by a replica that has everything and by one that has not, and robbed by hand. In the end every record
that was accepted is in the lake once, as readers see it; or a marker names a gap and its size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.chaos import command, export_verify
from benchmarks.chaos.cluster import Victim, quiet_role
from benchmarks.chaos.export_blows import Blows
from benchmarks.chaos.export_producers import Producers
from benchmarks.chaos.killer import Killer
from cli.embedded.seaweed import SeaweedFS
from kernel.config import loading as configuration
from kernel.log.shapes import shapes
from kernel.log.topics import provision
from kernel.service.resources import Resources
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.outages.rig import UnrulyRedis, off

_EXPORTERS: Final = 3
_FAULTS: Final = ("500", "503", "lost", "reset", *[None] * 16)


def _toml(redis: UnrulyRedis, seaweed: SeaweedFS, endpoint: str) -> str:
    return f"""
[redis]
addr = "{redis.addr}"
start_patience = "60s"
dial_timeout = "1s"
read_timeout = "1s"
write_timeout = "1s"

[object_store]
endpoint = "{endpoint}"
access_key_id = "{seaweed.access_key_id}"
secret_access_key = "{seaweed.secret_access_key}"
put_attempts = 2

[streams]
tasks = {{ retention = "2s" }}
status = {{ retention = "2s" }}
logs = {{ retention = "2s" }}
dlq = {{ retention = "2s" }}

[flow_engine]
retention = "2s"

[exporter]
max_rows = 500
max_age = "1s"
poll_interval = "200ms"
hold = "10m"
ledger_interval = "0s"

[observability]
metrics_port = 0
log_level = "warn"
"""


async def _work(arguments: argparse.Namespace, data: Path, redis: UnrulyRedis, seaweed: SeaweedFS) -> list[str]:
    async with contextlib.AsyncExitStack() as stack:
        flaky = await stack.enter_async_context(FlakyS3(seaweed.endpoint))
        path = data / "fetchbox.toml"
        path.write_text(_toml(redis, seaweed, flaky.endpoint))
        config = configuration.load(path, {})
        resources = await Resources.open(config)
        stack.push_async_callback(resources.close)
        streams = [stream for shape in shapes(config) for stream in shape.streams()]
        blows = Blows(redis, resources.redis, streams, arguments.seed)
        producers = Producers(config, resources, lambda: blows.server, records=arguments.records, seed=arguments.seed)
        exporters: dict[str, Victim] = {
            name: quiet_role(name, "exporter", path, data) for name in (f"exporter-{i}" for i in range(_EXPORTERS))
        }
        killer = Killer(exporters, arguments.seed, arguments.pause, producers.produced)
        stack.push_async_callback(off, killer.close)
        for exporter in exporters.values():
            stack.push_async_callback(off, exporter.kill9)
        await asyncio.gather(*(off(exporter.restart) for exporter in exporters.values()))
        await provision(resources.redis, config)
        await blows.begun()
        killer.start()
        rng = Random(f"{arguments.seed}/store")
        flaky.faults = lambda _method, _target: rng.choice(_FAULTS)
        started = time.monotonic()
        producing = asyncio.create_task(producers.run())
        while not producers.enough:
            await blows.strike()
        producers.over.set()
        await producing
        took = time.monotonic() - started
        print(f"{took:.1f} s, killed {dict(killer.killed)}, Redis {dict(blows.struck)}, {producers.produced}")
        await off(killer.rest)
        flaky.faults = lambda _method, _target: None
        return await export_verify.problems(config, resources, producers.produced, blows.splits)


def _run(arguments: argparse.Namespace, data: Path) -> list[str]:
    redis, seaweed = UnrulyRedis(data / "redis"), SeaweedFS(data / "seaweedfs")
    try:
        redis.start()
        seaweed.start()
        return asyncio.run(asyncio.wait_for(_work(arguments, data, redis, seaweed), arguments.timeout))
    except TimeoutError as error:
        return [f"not done within {arguments.timeout:g} s: {error}"]
    finally:
        seaweed.kill9()
        redis.stop()


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = command.options("benchmarks.chaos.export", __doc__)
    parser.set_defaults(pause=20.0)  # one that has just begun has to come to something
    parser.add_argument("--records", type=int, default=20_000)
    return command.verdict(parser, _run, "every record is in the lake once, or a marker names the gap")


if __name__ == "__main__":
    sys.exit(main())
