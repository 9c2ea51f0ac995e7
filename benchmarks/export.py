"""What the way of an entry into the lake costs: rows a second of CPU and of wall time.

    python -m benchmarks.export [--rows 20000] [--rounds 5] [--only status,logs] [--json FILE]

`decode` is all that is done with an entry between Redis and Parquet: its place, its message, redaction. `messages` is
the message alone, by ptars with the proof that it has read what is there; `redaction` the secrets alone; `ptars` what a
batch takes without proof; `generic` the decoder that goes by the descriptors and is the check of the other. Their peer
is `dict`: MessageToDict and pyarrow's Table.from_pylist. All have the same entries, as our services write them, and
after each run its rows are counted; figures are medians of the rounds. The exit code is 1 where, by CPU, `messages` is
not five times as fast as `dict`, or `decode`, which does more, not 1.5 times.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from google.protobuf.json_format import MessageToDict
from ptars import HandlerPool

from benchmarks.export_samples import entries
from kernel.log.messages import PAYLOAD
from pipeline.schema import generic, messages
from pipeline.schema.decoding import decode
from pipeline.schema.redacting import redacted
from pipeline.schema.rows import Row
from pipeline.tables import DLQ, LOGS, STATUS, TASKS, Table

SAMPLES = {
    "tasks": (TASKS, False),
    "tasks signed": (TASKS, True),
    "status": (STATUS, False),
    "logs": (LOGS, False),
    "logs signed": (LOGS, True),
    "dlq signed": (DLQ, True),
}
"""Which entries, and whether the URLs in them have signatures."""
BARS = {"messages": 5.0, "decode": 1.5}
"""How many times as fast as `dict` they have to be."""
_COLUMNS = ("decode", "messages", "redaction", "ptars", "generic", "dict")

Seconds = tuple[float, float]
"""Of CPU and of wall time."""
Way = Callable[[], Any]


def ways(table: Table, rows: Sequence[Row]) -> dict[str, Way]:
    """All ways to decode the entries; each returns something with a row for each of them."""
    kind, payloads = table.message, [row.fields[PAYLOAD] for row in rows]
    bare = HandlerPool([kind.DESCRIPTOR.file]).get_for_message(kind.DESCRIPTOR)
    read = messages.decode(kind, payloads)[0]
    return {
        "decode": lambda: decode(table, rows).batch,
        "messages": lambda: messages.decode(kind, payloads)[0],
        "redaction": lambda: redacted(kind, read),
        "ptars": lambda: bare.list_to_record_batch(payloads),
        "generic": lambda: generic.decode(kind, payloads)[0],
        "dict": lambda: pa.Table.from_pylist([_dict(kind.FromString(payload)) for payload in payloads]),
    }


def _dict(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def measured(way: Way, rows: int) -> Seconds:
    """What one run costs; it has to give a row for each entry."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    found = way()
    took = time.process_time() - cpu, time.perf_counter() - wall
    if found.num_rows != rows:
        raise SystemExit(f"{found.num_rows} rows of {rows} entries")
    return took


def run(rows: int, rounds: int, only: Sequence[str]) -> dict[str, dict[str, Seconds]]:
    """Rows a second of CPU and of wall time, by sample and way."""
    found: dict[str, dict[str, Seconds]] = {}
    for name in only:
        table, signed = SAMPLES[name]
        times: dict[str, list[Seconds]] = {way: [] for way in _COLUMNS}
        contestants = ways(table, entries(table, rows, signed=signed))
        for way in contestants.values():
            way()
        for _ in range(rounds):
            for way, call in contestants.items():
                times[way].append(measured(call, rows))
        found[name] = {way: (_rate(rows, times[way], 0), _rate(rows, times[way], 1)) for way in _COLUMNS}
        print(
            f"{name:<14}" + "".join(f"{found[name][way][0]:>11,.0f}{found[name][way][1]:>11,.0f}" for way in _COLUMNS)
        )
    return found


def _rate(rows: int, times: Sequence[Seconds], which: int) -> float:
    return rows / median(one[which] for one in times)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(SAMPLES), help="samples, separated by commas")
    parser.add_argument("--json", type=Path, help="where every figure is written too")
    options = parser.parse_args()
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
    known = {name: version(name) for name in ("protobuf", "ptars", "pyarrow")}
    print(f"{platform.platform()}, {machine}, {known}")
    print(f"{'rows/s':<14}" + "".join(f"{way:>12} {'wall':>9}" for way in _COLUMNS))
    found = run(options.rows, options.rounds, options.only.split(","))
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine | known, "rows_a_second": found}, indent=1))
    missed = [
        f"{name}: {way} is not {bar:g} times as fast as dict"
        for name, figures in found.items()
        for way, bar in BARS.items()
        if figures[way][0] < bar * figures["dict"][0]
    ]
    print("\n".join(missed) or "every bar is met")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
