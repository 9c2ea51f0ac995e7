"""The producer over very many small files in one directory: files a second, memory, and bytes of Redis a file.

    python -m benchmarks.producer [--files 1000000] [--folder /dev/shm] [--directories 1] [--json FILE]

One Valkey process of the run with appendfsync everysec, and one process of the role with rate 0 and no backlog limit.
Two scans are timed, in the producer's own words: the first, which puts every file onto the list, and a second in which
every file is known; what is on the list in the end is counted file by file. Memory is the peak of the producer's
resident set; `grown` is what it grew by from 10,000 files on. Bytes are those of all marks, by MEMORY USAGE. The exit
code is 1 where a file is missing or doubled, or the memory grew by more than 64 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.bars import MISSED
from benchmarks.peers.measure import cpu
from cli.embedded.process import LocalProcess
from cli.embedded.valkey import Valkey

_LOW: Final = "jobqueue:low_priority"
_WARM: Final = 10_000
_BAR_KB: Final = 64 * 1024
_POLL_SECONDS: Final = 0.05


def _make(folder: Path, files: int, directories: int) -> float:
    """Creates them; how long it took."""
    began = time.perf_counter()
    for number in range(directories):
        (folder / f"{number}").mkdir()
    here = [os.open(folder / f"{number}", os.O_RDONLY) for number in range(directories)]
    for number in range(files):
        made = os.open(f"report-{number:07}.csv", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here[number % directories])
        os.write(made, b"some bytes\n")
        os.close(made)
    for opened in here:
        os.close(opened)
    return time.perf_counter() - began


def _configuration(folder: Path, scanned: Path, addr: str) -> Path:
    path = folder / "fetchbox.toml"
    path.write_text(
        f'[redis]\naddr = "{addr}"\n[observability]\nmetrics_port = 0\n[producer]\nscan_dir = "{scanned}"\n'
        'rate_limit_per_sec = 0\nmax_backlog = 0\nsettle = "0s"\nscan_interval = "1s"\n'
    )
    return path


def _memory(pid: int, name: str) -> int:
    """`VmRSS` or `VmHWM` of a process, in kB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has no {name}")


def _wait(true: Callable[[], bool], child: LocalProcess, patience: float) -> float:
    ends = time.monotonic() + patience
    while not true():
        if not child.running:
            raise SystemExit("the producer has ended")
        if time.monotonic() > ends:
            raise SystemExit("takes too long")
        time.sleep(_POLL_SECONDS)
    return time.perf_counter()


def _scans(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if '"directory_scanned"' in line]


def _measured(arguments: argparse.Namespace, work: Path) -> dict[str, float]:
    scanned, log = work / "in", work / "producer.log"
    scanned.mkdir()
    made = _make(scanned, arguments.files, arguments.directories)
    valkey = Valkey(work / "valkey", appendfsync="everysec")
    valkey.start()
    try:
        server = redis.Redis(port=valkey.port)
        config = _configuration(work, scanned, valkey.addr)
        command = [sys.executable, "-m", "cli.main", "serve", "--role=producer", f"--config={config}"]
        child = LocalProcess("producer", command, log, lambda: True)
        child.start()
        try:
            found = _scanned(child, server, arguments, log, valkey.pid)
        finally:
            child.stop()
        found["created_per_s"] = arguments.files / made
        return found | _stored(server, arguments.files)
    finally:
        valkey.stop()


def _scanned(
    child: LocalProcess, server: redis.Redis, arguments: argparse.Namespace, log: Path, redis_pid: int
) -> dict[str, float]:
    patience = arguments.patience
    _wait(lambda: server.llen(_LOW) > 0, child, patience)
    _wait(lambda: server.llen(_LOW) >= min(_WARM, arguments.files), child, patience)
    warm = _memory(child.pid, "VmRSS")
    redis_cpu = cpu(redis_pid)
    _wait(lambda: len(_scans(log)) >= 1, child, patience)
    first_cpu = cpu(child.pid)
    _wait(lambda: len(_scans(log)) >= 2, child, patience)
    first, second = _scans(log)[:2]
    peak = _memory(child.pid, "VmHWM")
    return {
        "enqueued_per_s": arguments.files / (first["duration_ms"] / 1000),
        "known_per_s": arguments.files / (second["duration_ms"] / 1000),
        "cpu_us_per_file": first_cpu / arguments.files * 1e6,
        "redis_us_per_file": (cpu(redis_pid) - redis_cpu) / arguments.files * 1e6,
        "peak_mb": peak / 1024,
        "grown_mb": (peak - warm) / 1024,
        "enqueued_again": float(second["count"]),
    }


def _stored(server: redis.Redis, files: int) -> dict[str, float]:
    jobs: set[str] = set()
    length = server.llen(_LOW)
    for start in range(0, length, 10_000):
        jobs |= {json.loads(entry)["filepath"] for entry in server.lrange(_LOW, start, start + 9_999)}
    marks = list(server.scan_iter("jobqueue:seen:*", count=1000))
    used = sum(server.memory_usage(key, samples=0) or 0 for key in marks)
    return {
        "missing": float(files - len(jobs)),
        "doubled": float(length - len(jobs)),
        "marks": float(sum(server.hlen(key) for key in marks)),
        "bytes_per_mark": used / files,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--directories", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--patience", type=float, default=900.0, help="seconds after which a part has failed")
    parser.add_argument("--json", type=Path, help="where every figure is written too")
    return parser.parse_args()


def main() -> int:
    """Runs, prints, and says whether the bars were kept."""
    arguments = _arguments()
    print(f"{arguments.files} files in {arguments.directories} directories of {arguments.folder}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the begin, Python {platform.python_version()}")
    work = Path(tempfile.mkdtemp(dir=arguments.folder, prefix="fetchbox-producer-"))
    try:
        found = _measured(arguments, work)
    finally:
        shutil.rmtree(work)
    for name, figure in found.items():
        print(f"{name:<20}{figure:>14,.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    if found["missing"] or found["doubled"] or found["enqueued_again"]:
        return 1
    return MISSED if found["grown_mb"] * 1024 > _BAR_KB else 0


if __name__ == "__main__":
    sys.exit(main())
