"""One engine that makes a report, in a process of its own: `python -m benchmarks.report_engines spark LAKE OUTPUT`.

It makes the report twice and prints what that cost as JSON; the tables go to OUTPUT. Of Spark, CPU and memory are those
of Python and of the JVM together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report_rows import PERIOD

_TICKS = os.sysconf("SC_CLK_TCK")

Tables = Mapping[str, pa.Table]


def spark(lake: Path) -> Callable[[], Tables]:
    """The report as `fetchbox report` makes it."""
    from pipeline.reports.build import COLUMNS, collect  # noqa: PLC0415 - what an engine costs to load is measured
    from pipeline.reports.days import Days  # noqa: PLC0415
    from pipeline.schema.columns import spark_schema  # noqa: PLC0415
    from pipeline.spark.session import session  # noqa: PLC0415
    from pipeline.tables import BY_NAME  # noqa: PLC0415

    running = session()

    def read(name: str) -> object:
        return running.read.schema(spark_schema(BY_NAME[name])).parquet(str(lake / name)).select(*COLUMNS[name])

    return lambda: collect({name: read(name) for name in COLUMNS}, Days.of(PERIOD))


def duckdb(lake: Path) -> Callable[[], Tables]:
    """The SQL that the tests compare reports with; its quantiles are exact."""
    from tests.pipeline.report_oracle import answers  # noqa: PLC0415

    return lambda: answers({folder.name: folder / "*.parquet" for folder in lake.iterdir()}, PERIOD)


def main() -> None:
    """See the module."""
    engine, lake, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    report = {"spark": spark, "duckdb": duckdb}[engine](lake)
    told: dict[str, float] = {"start": _age(), "start_cpu": _tree()[0]}
    for name in ("first", "second"):
        wall, cpu = time.perf_counter(), _tree()[0]
        tables = report()
        told |= {name: time.perf_counter() - wall, f"{name}_cpu": _tree()[0] - cpu}
    for name, table in tables.items():
        pq.write_table(table, output / f"{name}.parquet")
    print(json.dumps(told | {"memory": _tree()[1]}))


def _age() -> float:
    """Seconds since this process began."""
    ticks = int(_text(Path("/proc/self/stat")).rpartition(")")[2].split()[19])
    return float(_text(Path("/proc/uptime")).split()[0]) - ticks / _TICKS


def _tree() -> tuple[float, int]:
    """Seconds of CPU and the most bytes of memory of this process and all that it has started."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            fields = _text(path / "stat").rpartition(")")[2].split()
            parents[int(path.name)] = int(fields[1]) if fields else 0
    tree = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    cpu, memory = 0, 0
    for pid in tree:
        fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        cpu += sum(map(int, fields[11:15])) if fields else 0
        lines = _text(Path(f"/proc/{pid}/status")).splitlines()
        memory += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return cpu / _TICKS, memory


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # it has just ended
        return ""


if __name__ == "__main__":
    main()
