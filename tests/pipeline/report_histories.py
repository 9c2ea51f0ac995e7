"""Histories of jobs, hosts, breakers and flows as streams may tell them: repeated, late, out of order, with gaps."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.reports.days import DAY_MS, Days
from pipeline.reports.report import Period
from pipeline.schema.columns import arrow_schema
from pipeline.tables import BY_NAME

Row = dict[str, Any]

TENANTS = (
    "",
    "acme",
    "acme ",
    "ACME",
    "o'brien",
    '"; drop table jobs; --',
    "Ünï 名前",
    "null",
    "a/b\\c",
    "tab\there",
    "%_\u202e",
)
_TYPES = ("default", "gallery", "chat", "", "unknown")
_HOSTS = ("cdn.example.com", "example.org:8443", "192.0.2.7", "2001:db8::1", "xn--bcher-kva.example", "host'\"\\", "")
_SILENT = ("silent.example", "mute.example")
"""Hosts of which nobody tells how long they took."""
_CODES = ("HTTP_503", "HTTP_404", "DOWNLOAD_TIMEOUT", "VALIDATION_CHECKSUM_HINT", "SYSTEM_CANCELED", "")
_URLS = (
    "https://cdn.example.com/a?b=c#d",
    "http://cdn.example.com:80/",
    "https://CDN.Example.com.:443/x",
    "https://user:p%40ss@example.org:8443/x",
    "http://[2001:db8::1]/x",
    "http://[2001:db8::1]:81/x",
    "HTTP://192.0.2.7",
    "http:///nowhere",
    "https://?query",
    "mailto:somebody@example.org",
    "no url at all",
    "",
)
_NUMBERS = ("", "-5", "1.5", "x", "99999999999999999999", "100000000000000", "0", "7", "8")
_ENDS = ("JOB_STATE_COMPLETED", "JOB_STATE_PARTIAL", "JOB_STATE_FAILED")
_OTHERS = ("JOB_STATE_UNKNOWN", "17", "JOB_STATE_QUEUED")


@dataclass
class History:
    """The rows of the tables that a report reads."""

    period: Period
    seed: int
    rows: dict[str, list[Row]] = field(
        default_factory=lambda: {name: [] for name in ("status", "logs", "dlq", "flows")}
    )

    def write(self, folder: Path) -> dict[str, Path]:
        """A file for each table, its rows in the order in which they were stored."""
        files = {}
        for name, rows in self.rows.items():
            files[name] = folder / f"{name}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(BY_NAME[name])), files[name])
        return files


def history(period: Period, seed: int, jobs: int) -> History:
    """The same one for the same arguments; another one whose first jobs are the same for more `jobs`."""
    made = History(period, seed)
    clock = _Clock(period)
    for number in range(jobs):
        _Job(made, clock, random.Random(f"{seed} {number}"), number).happen()
    for number in range(jobs // 8):
        _breaker(made, clock, random.Random(f"{seed} breaker {number}"), number)
    for number in range(jobs // 4):
        _run(made, clock, random.Random(f"{seed} run {number}"), number)
    for name, rows in made.rows.items():
        random.Random(f"{seed} {name}").shuffle(rows)
        for number, row in enumerate(rows):
            row |= {"entry_partition": number % 4, "entry_id": f"{clock.end}-{number}"}
            row.setdefault("entry_time", datetime.fromtimestamp(clock.end // 1000, UTC))
    return made


class _Clock:
    """Times in and around a period, many of them where days and clocks change."""

    def __init__(self, period: Period) -> None:
        days = Days.of(period)
        self.begin, self.end = days.begin_ms, days.end_ms
        self._edges = [*(span.begin_ms for span in days.spans), days.end_ms]

    def time(self, luck: random.Random) -> int:
        match luck.randrange(8):
            case 0:
                return luck.choice(self._edges) + luck.randint(-1, 1)
            case 1:
                return luck.choice(self._edges) + luck.randint(-3_600_000, 3_600_000)
            case 2:
                return luck.randint(self.begin - 2 * DAY_MS, self.end + 2 * DAY_MS)
            case 3:
                return luck.randint(self.begin, self.end) // 600_000 * 600_000
            case _:
                return luck.randint(self.begin, self.end)


def _while(luck: random.Random) -> int:
    """Some time, in ms: each power of two is as likely as the others."""
    return luck.getrandbits(luck.choice((0, 1, 3, 4, 8, 10, 12, 16, 20, 24, 27)))


@dataclass
class _Job:
    made: History
    clock: _Clock
    luck: random.Random
    number: int

    def happen(self) -> None:
        luck = self.luck
        self.id = f"job-{self.number}"
        self.tenant, self.type = luck.choice(TENANTS), luck.choice(_TYPES)
        self.now = self.clock.time(luck)
        self.revision = 0
        self.counts = luck.random() < 0.8
        self.total = luck.choice((0, 9))
        if luck.random() < 0.9:
            self._states()
        for resource in range(luck.choice((0, 1, 1, 2, 5))):
            self._resource(f"r{resource}" if luck.random() < 0.9 else "")

    def _states(self) -> None:
        luck = self.luck
        states = ["JOB_STATE_QUEUED"] * (luck.random() < 0.9) + ["JOB_STATE_IN_PROGRESS"] * luck.choice((0, 1, 1, 1, 3))
        states += [luck.choice(_ENDS)] * (luck.random() < 0.9)
        if luck.random() < 0.15:  # replayed, and perhaps ended again
            states += ["JOB_STATE_IN_PROGRESS", luck.choice(_ENDS)][: luck.randint(1, 2)]
        states += [luck.choice(_OTHERS)] * (luck.random() < 0.1)
        if luck.random() < 0.1:
            luck.shuffle(states)
        at = self.now
        for state in states:
            self.revision += luck.randint(0, 2)
            row = self._status(state, at)
            for _ in range(luck.choice((1, 1, 1, 2))):  # at least once
                self.made.rows["status"].append(dict(row))
            at += -_while(luck) if luck.random() < 0.1 else _while(luck)  # clocks may go back
            if luck.random() < 0.05:
                at = luck.choice((0, 2**63 - 1, self.clock.time(luck)))

    def _status(self, state: str, at: int) -> Row:
        luck = self.luck
        moved = luck.random() < 0.03
        return {
            "job_id": self.id,
            "job_type": luck.choice(_TYPES) if moved else self.type,
            "tenant": luck.choice(TENANTS) if moved else self.tenant,
            "state": state,
            "resources_total": self.total if not moved else luck.choice((0, 9)),
            "log_offset": luck.choice((self.now, self.now, self.now + 1)) << 20 if luck.random() < 0.9 else 0,
            "resources_completed": luck.randrange(9),
            "resources_failed": luck.randrange(3),
            "last_error_code": luck.choice(_CODES),
            "timestamp_ms": min(max(at, 0), 2**63 - 1),
            "revision": self.revision if self.counts else 0,
        }

    def _resource(self, resource: str) -> None:
        luck, at = self.luck, self.now
        for replay in range(luck.choice((1, 1, 1, 2, 3))):
            for outcome in ["retry"] * luck.choice((0, 0, 1, 3)) + luck.choice((["done"], ["done"], ["failed"], [])):
                at += _while(luck)
                self._line(resource, outcome, at)
                if outcome == "failed" or luck.random() < 0.05:
                    self._letter(resource, replay, at)
            if luck.random() < 0.2:
                at = self.clock.time(luck)

    def _line(self, resource: str, outcome: str, at: int) -> None:
        luck = self.luck
        fields = {"outcome": outcome, "attempt": "1"}
        if luck.random() < 0.9:
            fields["host"] = luck.choice((*_HOSTS, *_SILENT))
        if fields.get("host") not in _SILENT and luck.random() < 0.9:
            fields["duration_ms"] = str(_while(luck)) if luck.random() < 0.9 else luck.choice(_NUMBERS)
        if outcome == "done" or luck.random() < 0.1:
            fields["size"] = str(_while(luck)) if luck.random() < 0.9 else luck.choice(_NUMBERS)
        if outcome != "done":
            fields["code"] = luck.choice(_CODES)
        row = {"job_id": self.id, "resource_id": resource, "timestamp_ms": at, "fields": list(fields.items())}
        for _ in range(luck.choice((1, 1, 1, 1, 2))):
            self.made.rows["logs"].append(dict(row))
        if luck.random() < 0.1:
            others = [("outcome", "odd"), ("host", "x")] if luck.random() < 0.5 else []
            self.made.rows["logs"].append(row | {"fields": others})

    def _letter(self, resource: str, replay: int, at: int) -> None:
        luck = self.luck
        row: Row = {"failure_code": luck.choice(_CODES), "failed_at_ms": at}
        match luck.randrange(6):
            case 0:
                row |= {"id": f"stream/{self.id}/{resource}/{replay}", "undecodable": b"\xff"}
            case 1:
                row |= {
                    "id": f"{self.id}/{replay}",
                    "queued_task": {"job_id": self.id, "task": "chat", "tenant": self.tenant},
                }
            case _:
                task = {"job_id": self.id, "resource_id": resource, "job_type": self.type, "tenant": self.tenant}
                row |= {"id": f"{self.id}/{resource}/{replay}", "task": task | {"url": luck.choice(_URLS)}}
        self.made.rows["dlq"].append(row)
        for _ in range(luck.choice((0, 0, 0, 1, 2))):
            self.made.rows["dlq"].append(row | {"failed_at_ms": at + luck.choice((0, 1, DAY_MS))})


def _breaker(made: History, clock: _Clock, luck: random.Random, number: int) -> None:
    name = luck.choice([*(f"host:{host}" for host in _HOSTS), *[f"task:{number}"] * 9])
    at = clock.time(luck)
    for event in _events(luck):
        at += _while(luck)
        fields = {"breaker": name, "event": event}
        if event == "closed" and luck.random() < 0.9:
            fields["open_ms"] = str(_while(luck)) if luck.random() < 0.9 else luck.choice(_NUMBERS)
        made.rows["logs"].append({"job_id": "", "timestamp_ms": at, "fields": list(fields.items())})


def _events(luck: random.Random) -> Sequence[str]:
    return luck.choice(
        (["opened"], ["closed"], ["opened", "closed"], ["opened", "closed", "opened"], ["odd", "opened"])
    )


def _run(made: History, clock: _Clock, luck: random.Random, number: int) -> None:
    at = clock.time(luck)
    run = {
        "flow_id": f"run-{number}",
        "flow_name": luck.choice(("nightly", "a'b", "Ünï")),
        "tenant": luck.choice(TENANTS),
    }
    for kind in _kinds(luck):
        made.rows["flows"].append(
            run | {"kind": kind, "entry_time": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)}
        )
        at += 1 + _while(luck) if luck.random() < 0.95 else -1


def _kinds(luck: random.Random) -> Iterator[str]:
    if luck.random() < 0.9:
        yield "flow.start"
    for _ in range(luck.randrange(3)):
        yield "step.completed"
    yield luck.choice(("flow.complete", "flow.complete", "flow.failed", "flow.cancelled"))
    if luck.random() < 0.1:
        yield "flow.complete"
