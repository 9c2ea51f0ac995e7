"""The exporter from real streams into a real object store, as `fetchbox export --once` is run, beside the plain way.

Valkey holds entries as our services write them, on the partitions of the four topics, `_SHARES` of each. Each run is a
process of its own that has an empty lake and ends when everything is in it; then the footers of what it has stored are
read, and its entries counted. A second run of it finds nothing to do: that is what starting costs, and the rates are
those without it. `benchmarks.export_peer` is the plain way, in turns with it. Of the exporter as a service that has
nothing to export, the commands and the CPU a second are measured. A row is to cost the plain way, which redacts and
proves nothing, three times the CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow.parquet as pq
import redis

from benchmarks.export_samples import entries
from benchmarks.peers.measure import cpu
from cli.embedded.process import LocalProcess
from cli.embedded.stack import EmbeddedStack
from fetchbox.config.v1.config_pb2 import Config
from kernel.config import loading as configuration
from kernel.log.shapes import shapes
from kernel.objects import ObjectStore
from kernel.redis import keys
from pipeline.tables import DLQ, LOGS, STATUS, TASKS

BAR: Final = 3.0
"""How many times the CPU of the exporter the plain way has to need for a row."""
_SHARES: Final = {TASKS: 0.33, STATUS: 0.33, LOGS: 0.33, DLQ: 0.01}
_BATCH: Final = 1000
_POLL_SECONDS: Final = 0.02
_MB: Final = 1024


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process needed: seconds, and kilobytes at its peak."""

    wall: float
    cpu: float
    peak: int


@dataclass(frozen=True, slots=True)
class Round:
    """A run with everything to do, one with nothing, and the bytes that the first has stored."""

    full: Spent
    start: Spent
    stored: int


class Rig:
    """The servers with the entries on them."""

    def __init__(self, stack: EmbeddedStack, folder: Path, patience: float) -> None:
        self.server = redis.Redis(port=stack.valkey.port)
        self.redis_pid = stack.valkey.pid
        self.config = Config()
        self.folder = folder
        self._patience = patience
        self._stack = stack
        # Modules are compiled once, as where they are installed, whatever this environment says.
        own = {"PYTHONPYCACHEPREFIX": str(folder / "pycache"), "PYTHONDONTWRITEBYTECODE": ""}
        self._environ = os.environ | own
        self.file("lake/")

    def file(self, prefix: str) -> Path:
        """The configuration of a lake."""
        path = self.folder / "fetchbox.toml"
        seaweed = self._stack.seaweed
        path.write_text(
            f'[redis]\naddr = "{self._stack.valkey.addr}"\n[observability]\nmetrics_port = 0\nlog_level = "warn"\n'
            f'[object_store]\nendpoint = "{seaweed.endpoint}"\naccess_key_id = "{seaweed.access_key_id}"\n'
            f'secret_access_key = "{seaweed.secret_access_key}"\n[lake]\nprefix = "{prefix}"\n'
        )
        self.config = configuration.load(path, {})
        return path

    def streams(self) -> list[tuple[str, int, str]]:
        """Table, partition and key of each stream."""
        topics = {table.topic: table.name for table in _SHARES}
        found = shapes(self.config)
        return [(topics[one.topic], number, key) for one in found for number, key in enumerate(one.streams())]

    def fill(self, rows: int) -> dict[str, int]:
        """Adds entries; how many of each table."""
        counts = {table.name: max(1, round(rows * share)) for table, share in _SHARES.items()}
        partitions = Counter(name for name, _, _ in self.streams())
        for table in _SHARES:
            made = entries(table, counts[table.name])
            for first in range(0, len(made), _BATCH):
                batch = self.server.pipeline(transaction=False)
                for row in made[first : first + _BATCH]:
                    stream = keys.stream(table.topic, row.partition % partitions[table.name])
                    batch.execute_command(
                        "XADD", stream, row.id, *(part for pair in row.fields.items() for part in pair)
                    )  # type: ignore[no-untyped-call]  # redis-py leaves it so
                batch.execute()
        return counts

    def forget(self) -> None:
        """Forgets how far another lake has come."""
        self.server.delete(*(keys.cursors(key) for _, _, key in self.streams()))

    def run(self, command: list[str], rows: int) -> Spent:
        """Runs a process to its end. SystemExit where it fails, takes too long, or has not exported so many rows."""
        began, peak = time.perf_counter(), 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environ) as process:
            while True:
                ended, status, used = os.wait4(process.pid, os.WNOHANG)
                took = time.perf_counter() - began
                if ended:
                    break
                if took > self._patience:
                    process.kill()
                peak = _peak(process.pid) or peak
                time.sleep(_POLL_SECONDS)
            process.returncode = os.waitstatus_to_exitcode(status)
            told = process.stdout.read() if process.stdout else ""
        if process.returncode or json.loads(told.splitlines()[-1]) != {"exported": rows}:
            raise SystemExit(f"{command[1:3]} ended with {process.returncode} after {took:.0f} s: {told!r}")
        return Spent(took, used.ru_utime + used.ru_stime, peak)


def _peak(pid: int) -> int:
    """Kilobytes; 0 of a process that has ended. What `wait4` tells is no less than this process had at the fork."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def ours(rig: Rig, number: int, counts: dict[str, int]) -> Round:
    """The exporter, twice."""
    prefix = f"lake{number}/"
    command = [sys.executable, "-m", "cli.main", "--json", "--config", str(rig.file(prefix)), "export", "--once"]
    rig.forget()
    full = rig.run(command, sum(counts.values()))
    start = rig.run(command, 0)
    return Round(full, start, _stored(rig.config, f"{prefix}v1/raw/", counts))


def plain(rig: Rig, number: int, counts: dict[str, int]) -> Round:
    """The plain way, with and without streams to read."""
    settings, limits = rig.config.object_store, rig.config.exporter
    store = {
        "bucket": settings.bucket,
        "endpoint": settings.endpoint,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
        "region": "us-east-1",
    }
    given = {
        "redis_port": rig.server.connection_pool.connection_kwargs["port"],
        "store": store,
        "max_rows": limits.max_rows,
        "max_bytes": limits.max_bytes,
        "prefix": f"plain{number}/",
    }
    command = [sys.executable, "-m", "benchmarks.export_peer"]
    full = rig.run([*command, json.dumps(given | {"streams": rig.streams()})], sum(counts.values()))
    start = rig.run([*command, json.dumps(given | {"streams": []})], 0)
    return Round(full, start, _stored(rig.config, given["prefix"], counts))


def _stored(config: Config, prefix: str, counts: dict[str, int]) -> int:
    """Bytes of the segments below a prefix. SystemExit where they have other rows than were put onto the streams."""

    async def read() -> list[tuple[str, bytes]]:
        objects = ObjectStore(config.object_store)
        try:
            found = [info.key for info in await objects.list(config.object_store.bucket, prefix, limit=1_000_000)]
            bodies = [await objects.get(config.object_store.bucket, key) for key in found]
        finally:
            await objects.close()
        return [(key, body or b"") for key, body in zip(found, bodies, strict=True)]

    rows: Counter[str] = Counter()
    places: dict[str, set[tuple[int, str]]] = {name: set() for name in counts}
    size = 0
    for key, body in asyncio.run(read()):
        name = key.removeprefix(prefix).partition("/")[0]
        file = pq.ParquetFile(BytesIO(body))
        rows[name] += file.metadata.num_rows
        columns = file.read(["entry_partition", "entry_id"]).to_pydict()
        places[name].update(zip(columns["entry_partition"], columns["entry_id"], strict=True))
        size += len(body)
    if rows != counts or any(len(found) != counts[name] for name, found in places.items()):
        raise SystemExit(f"{prefix} has {dict(rows)} of {counts}, different ones {[*map(len, places.values())]}")
    return size


@contextmanager
def _service(rig: Rig) -> Iterator[LocalProcess]:
    command = [sys.executable, "-m", "cli.main", "serve", "--role=exporter", f"--config={rig.folder / 'fetchbox.toml'}"]
    child = LocalProcess("exporter", command, rig.folder / "exporter.log", lambda: True)
    child.start()
    try:
        yield child
    finally:
        child.stop()


def idle(rig: Rig, seconds: float, patience: float) -> dict[str, float]:
    """What the service needs a second while there is nothing to export."""
    noted = keys.cursors(rig.streams()[0][2])
    with _service(rig) as child:
        ends, first = time.monotonic() + patience, rig.server.hget(noted, "exporter:seen")
        while rig.server.hget(noted, "exporter:seen") == first:
            if not child.running or time.monotonic() > ends:
                raise SystemExit(f"the service does not begin: {child.log_tail()}")
            time.sleep(_POLL_SECONDS)
        time.sleep(2.0)
        began, before, used, redis_used = time.perf_counter(), _calls(rig.server), cpu(child.pid), cpu(rig.redis_pid)
        time.sleep(seconds)
        took = time.perf_counter() - began
        return {
            "commands_a_second": (_calls(rig.server) - before) / took,
            "cpu_a_second": (cpu(child.pid) - used) / took,
            "redis_cpu_a_second": (cpu(rig.redis_pid) - redis_used) / took,
        }


def _calls(server: redis.Redis) -> int:
    """Commands of all clients, those within transactions too, without this question."""
    stats: dict[str, dict[str, Any]] = server.info("commandstats")
    return sum(int(found["calls"]) for name, found in stats.items() if name != "cmdstat_info|commandstats")


def _report(rows: int, who: str, rounds: list[Round]) -> dict[str, float]:
    figures = {
        "rows_a_second": rows / median(one.full.wall - one.start.wall for one in rounds),
        "rows_a_cpu_second": rows / median(one.full.cpu - one.start.cpu for one in rounds),
        "start_wall": median(one.start.wall for one in rounds),
        "start_cpu": median(one.start.cpu for one in rounds),
        "peak_mb": median(one.full.peak for one in rounds) / _MB,
        "bytes_a_row": rounds[-1].stored / rows,
    }
    print(
        f"{who:<9}{figures['rows_a_second']:>11,.0f}{figures['rows_a_cpu_second']:>13,.0f}{figures['start_wall']:>9.2f}"
        f"{figures['start_cpu']:>9.2f}{figures['peak_mb']:>9,.0f}{figures['bytes_a_row']:>13.1f}"
    )
    return figures


def compared(given: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Runs, and prints; the figures, and which bars were missed."""
    with (
        tempfile.TemporaryDirectory(dir=given.folder, prefix="fetchbox-export-") as folder,
        EmbeddedStack(Path(folder)) as stack,
    ):
        rig = Rig(stack, Path(folder), given.patience)
        for way in (ours, plain):
            way(rig, -1, {})  # compiles
        counts = rig.fill(given.rows)
        rounds: dict[str, list[Round]] = {"exporter": [], "plain": []}
        for number in range(given.rounds):
            rounds["exporter"].append(ours(rig, number, counts))
            rounds["plain"].append(plain(rig, number, counts))
        waiting = idle(rig, given.idle, given.patience)
    rows = sum(counts.values())
    print(f"{rows:,} entries of {', '.join(counts)} on {len(rig.streams())} streams; load {os.getloadavg()[0]:.1f}")
    print(f"{'':<9}{'rows/s':>11}{'rows/CPU s':>13}{'start s':>9}{'CPU s':>9}{'peak MB':>9}{'bytes a row':>13}")
    figures: dict[str, Any] = {who: _report(rows, who, found) for who, found in rounds.items()}
    ratios = {
        name: figures["exporter"][name] / figures["plain"][name] for name in ("rows_a_second", "rows_a_cpu_second")
    }
    print(f"{'ratio':<9}{ratios['rows_a_second']:>11.2f}{ratios['rows_a_cpu_second']:>13.2f}")
    print("idle: " + ", ".join(f"{name} {value:.4g}" for name, value in waiting.items()))
    raw = {who: [asdict(one) for one in found] for who, found in rounds.items()}
    missed = [] if ratios["rows_a_cpu_second"] >= BAR else [f"a row costs the plain way not {BAR:g} times the CPU"]
    return figures | {"ratios": ratios, "idle": waiting, "rounds": raw}, missed
