"""The decoder of the exporter: rows a second of CPU and of wall time, by the kind of entry.

`decode` is all that is done with an entry between Redis and Parquet: its place, its message, redaction. `messages` is
the message alone, by ptars with the proof that it has read what is there; `redaction` the secrets alone; `ptars` what a
batch takes without proof; `generic` the decoder that goes by the descriptors and is the check of the other. Their peer
is `dict`: MessageToDict and pyarrow's Table.from_pylist. All have the same entries, as our services write them, and
after each run its rows are counted; figures are medians of the rounds. By CPU, `messages` is to be five times as fast
as `dict`, and `decode`, which does more, 1.5 times.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
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


def compared(rows: int, rounds: int, only: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Runs, and prints; the figures, and which bars were missed."""
    print(f"{'rows/s':<14}" + "".join(f"{way:>12} {'wall':>9}" for way in _COLUMNS))
    found = run(rows, rounds, only)
    missed = [
        f"{name}: {way} is not {bar:g} times as fast as dict"
        for name, figures in found.items()
        for way, bar in BARS.items()
        if figures[way][0] < bar * figures["dict"][0]
    ]
    return found, missed
