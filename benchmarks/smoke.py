"""Starts every benchmark for a moment, with sizes too small to mean anything: it proves that each still runs.

    python -m benchmarks.smoke [NAME …] [--at-once 3]

A benchmark that misses its bar runs (exit code 3, `benchmarks.bars`); one that loses work, takes too long or raises
does not. Peers that need Node or PyPI, and Spark, are left out. chaos is not here: `make chaos` has its own sizes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.bars import MISSED

SIZES: Final[Mapping[str, str]] = {
    "recovery": "--jobs 20 --ttl 5 --interval 1 --rounds 1",
    "soak": "--minutes 0.05 --resources 5 --at-once 1",
    "export": "--rows 300 --decoded 10 --rounds 1 --idle 0.1 --patience 60",
    "accept": "--manifests 2 --resources 10 --parallel 2 --rounds 1",
    "flows": "--runs 40 --steps 3 --samples 3 --patience 60",
    "sse": "--jobs 3 --events 2 --watchers 0,2",
    "fetch": "--files 20 --rounds 1 --slots 4",
    "tasks": "--only fetchbox --jobs 200 --slots 8 --rounds 1 --latency-jobs 2 --patience 60",
    "lists": "--slots 2 --jobs 100 --rounds 1 --wake-ups 2 --latency-jobs 2 --patience 60",
    "gateway": "--requests 20 --messages 20 --connections 2",
    "producer": "--files 100 --patience 60",
    "lane": "--tasks 100 --slots 8 --jobs 1,10 --rounds 1 --patience 60",
    "worker": "--tasks 100 --slots 8 --jobs 1,10 --patience 60",
    "report": "--rows 2000 --rounds 1 --only duckdb",
}
"""Benchmark -> its arguments; those that wait longest come first."""

LIMIT: Final = 90.0
"""Seconds that one may take on a busy machine."""


def ran(name: str) -> tuple[str, float, str]:
    """A benchmark, the seconds that it took, and why it does not run; an empty text where it does."""
    began = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", *SIZES[name].split()]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, process_group=0)
        try:
            code: int | str = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            process.wait()
            code = f"no end in {LIMIT:g} s"
        output.seek(0)
        wrong = "" if code in (0, MISSED) else f"ended with {code}\n{output.read()}"
    return name, time.monotonic() - began, wrong


def main() -> int:
    """1 where one of them does not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(SIZES)}")
    parser.add_argument("--at-once", type=int, default=3, help="most of them wait")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SIZES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SIZES)}")
    failed = 0
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for name, took, wrong in pool.map(ran, arguments.names or SIZES):
            print(f"{name:<10} {took:5.1f} s  {wrong or 'runs'}", flush=True)
            failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
