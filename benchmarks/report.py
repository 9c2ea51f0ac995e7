"""What a report costs: Spark beside DuckDB and polars, each in its own process, on the same files.

    python -m benchmarks.report [--rows 5000000] [--rounds 3] [--only spark,duckdb] [--json FILE]

A month of jobs is written as Parquet first (`benchmarks.report_rows`), on local disk, so that only the engines are
measured. Each makes the report twice; the first pays for what an engine does once. Then the tables are compared by
cell with those of DuckDB; the exit code is 1 where one differs. polars makes the six tables that cost most: those of
breakers and flows have few rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from benchmarks.peers import environment
from benchmarks.report_rows import write
from tests.pipeline.report_oracle import differences

ENGINES = ("spark", "duckdb", "polars")
_SECONDS = 3600
_GB = 1 << 30


def _command(engine: str) -> list[str]:
    if engine == "polars":
        return [str(environment.python(engine)), str(environment.FOLDER / engine / "report.py")]
    return [sys.executable, "-m", "benchmarks.report_engines", engine]


def _run(engine: str, lake: Path, output: Path) -> dict[str, float]:
    output.mkdir(exist_ok=True)
    command = [*_command(engine), str(lake), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} failed:\n{done.stderr[-4000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def _line(engine: str, runs: list[dict[str, float]]) -> str:
    middle = {name: median(run[name] for run in runs) for name in runs[0]}
    pairs = [f"{middle[part]:>8.1f} {middle[f'{part}_cpu']:>8.1f}" for part in ("start", "first", "second")]
    return f"{engine:<8} {'   '.join(pairs)} {middle['memory'] / _GB:>8.1f}"


def _compare(engine: str, ours: Path, theirs: Path) -> list[str]:
    found = []
    for path in sorted(ours.iterdir()):
        name = path.stem
        tables = pq.read_table(path), pq.read_table(theirs / path.name)
        found += [f"{engine}: {text}" for text in differences(name, *tables)]
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ENGINES), help="engines, with commas between them")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    engines = given.only.split(",")
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory(prefix="fetchbox-report-") as folder:
        lake, outputs = Path(folder, "lake"), {engine: Path(folder, engine) for engine in engines}
        rows = write(lake, given.rows)
        size = sum(path.stat().st_size for path in lake.rglob("*.parquet"))
        print(f"{rows:,} rows, {size / rows:.1f} bytes each; {os.cpu_count()} cores, {platform.machine()}")
        print(f"load {os.getloadavg()[0]:.1f}; pyspark {version('pyspark')}, duckdb {version('duckdb')}")
        for _ in range(given.rounds):
            for engine in engines:
                runs[engine].append(_run(engine, lake, outputs[engine]))
        print(f"{'':<8} {'start':>17}   {'first':>17}   {'second report':>17} {'memory':>8}")
        print(f"{'':<8} {'   '.join(['    wall      CPU'] * 3)} {'GB':>8}")
        for engine in engines:
            print(_line(engine, runs[engine]))
        differing = [
            text
            for engine in engines
            if "duckdb" in engines
            for text in _compare(engine, outputs[engine], outputs["duckdb"])
        ]
    if given.json:
        given.json.write_text(json.dumps({"rows": rows, "bytes": size, "runs": runs}))
    print(*differing[:20], sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
