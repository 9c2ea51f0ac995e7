"""Reports that never happened, with tables as they might have been: the same ones every time."""

import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from pipeline.reports.histogram import bucket, quantile
from pipeline.reports.report import Hole, Period, Report
from pipeline.reports.tables import REPORT_TABLES

CREATED = datetime(2026, 11, 28, 6, 30, tzinfo=UTC)
LAST = date(2026, 11, 27)
HOSTILE = (
    "</script><script>document.title='run'</script>",
    '"><img src=x onerror=alert(1)>',
    "a\u202egnp.exe\u2066\x00\x1b[31m",
    '=HYPERLINK("http://example.org")',
    "</style></svg></table>&lt;&amp;",
    "名前." + "sehr-langer-name." * 14 + "example",
)
_CODES = ("DOWNLOAD_TIMEOUT", "HTTP_503", "HTTP_404", "VALIDATION_CHECKSUM_HINT", "STORAGE_UNAVAILABLE", "DOWNLOAD_DNS")
_GROUPS = (("acme", "gallery", 900), ("acme", "default", 240), ("northwind", "default", 420), ("", "chat", 130))


def report(
    days: int = 7, hosts: int = 40, *, names: Sequence[str] = (), holes: Sequence[Hole] = (), seed: int = 1
) -> Report:
    """`names` stand for tenants, types, hosts, codes, breakers and flows beside plain ones."""
    period = Period(LAST - timedelta(days=days - 1), LAST, "Europe/Berlin")
    sample = _Sample(random.Random(seed), list(period), hosts, names)
    tables = {
        name: pa.Table.from_pylist(list(getattr(sample, name)()), schema) for name, schema in REPORT_TABLES.items()
    }
    kept_from = {"status": period.first + timedelta(days=3)} if holes else {}
    return Report(period, CREATED, tables, holes=holes, kept_from=kept_from)


def nothing(days: int = 7) -> Report:
    """Nothing happened."""
    tables = {name: schema.empty_table() for name, schema in REPORT_TABLES.items()}
    return Report(Period(LAST - timedelta(days=days - 1), LAST), CREATED, tables)


def holes() -> list[Hole]:
    """One of each kind."""
    at = datetime(2026, 11, 24, 3, 12, 5, tzinfo=UTC)
    return [
        Hole("status", 3, 2, "hole", 1204, at, at + timedelta(hours=2), at + timedelta(hours=3)),
        Hole("logs", 0, 4, "rewritten", 0, None, None, at + timedelta(minutes=5)),
    ]


class _Sample:
    def __init__(self, luck: random.Random, days: Sequence[date], hosts: int, names: Sequence[str]) -> None:
        self._luck, self._days = luck, days
        self._groups = [*_GROUPS, *((name, name, 60) for name in names)]
        self._hosts = [*names, *(f"cdn{number:04}.example.net" for number in range(hosts))]
        self._codes = [*_CODES, *names]
        self._names = names

    def jobs_daily(self) -> Iterator[dict[str, Any]]:
        for day, (tenant, kind, size) in self._each():
            ended = self._busy(day, size)
            failed, partial, canceled = (self._part(ended, share) for share in (self._trouble(day), 0.04, 0.01))
            completed = ended - failed - partial - canceled
            counted = completed + partial + failed
            yield {
                "day": day,
                "tenant": tenant,
                "job_type": kind,
                "submitted": ended + self._luck.randrange(9),
                "ended": ended,
                "completed": completed,
                "partial": partial,
                "failed": failed,
                "canceled": canceled,
                "success_rate": completed / counted if counted else None,
                "hours": 24.0,
                "resources_completed": ended * 12,
                "resources_failed": failed * 5,
                "jobs_per_hour": ended / 24,
                "peak_per_minute": ended // 90,
                **self._quantiles("wait", 900),
                **self._quantiles("run", 20_000),
            }

    def hosts_daily(self) -> Iterator[dict[str, Any]]:
        few = self._hosts[:: max(1, len(self._hosts) // 40)]
        for day in self._days:
            for host in few:
                row = self._attempts(self._busy(day, 300))
                seconds = 0.4 * row["stored"]
                row |= {
                    "bytes_per_second": row["bytes"] / seconds if seconds else None,
                    **self._quantiles("duration", 400),
                }
                yield {"day": day, "tenant": "acme", "job_type": "gallery", "host": host, **row}

    def failures_daily(self) -> Iterator[dict[str, Any]]:
        for day in self._days:
            for rank, code in enumerate(self._codes):
                counts = {
                    "letters": self._luck.randrange(40) // (rank + 1),
                    "retries": self._luck.randrange(200) // (rank + 1),
                }
                host = self._luck.choice(self._hosts)
                yield {"day": day, "tenant": "acme", "job_type": "gallery", "host": host, "code": code, **counts}

    def hosts(self) -> Iterator[dict[str, Any]]:
        rows = [{"host": host, **self._attempts(self._luck.randrange(20, 9000))} for host in self._hosts]
        for row in rows:
            row["failure_rate"] = (row["failed"] + row["retries"]) / row["attempts"]
            row.update(self._quantiles("duration", int(math.exp(self._luck.uniform(4, 10)))))
        for rank, row in enumerate(sorted(rows, key=lambda row: (-row["duration_p95_ms"], row["host"])), 1):
            row["slowest"] = rank
        for rank, row in enumerate(
            sorted(rows, key=lambda row: (-row["failure_rate"], -row["failed"], row["host"])), 1
        ):
            row["failing"] = rank
        yield from rows

    def dead_letters(self) -> Iterator[dict[str, Any]]:
        for tenant, kind, _ in self._groups:
            for code in self._luck.sample(self._codes, 3):
                letters = self._luck.randrange(1, 60)
                unresolved = self._luck.randrange(letters + 1)
                oldest = self._luck.uniform(600, 86_400 * len(self._days)) if unresolved else None
                yield {
                    "tenant": tenant,
                    "job_type": kind,
                    "code": code,
                    "letters": letters,
                    "unresolved": unresolved,
                    "oldest_age_s": oldest,
                    "p50_age_s": oldest and oldest / 3,
                }

    def breakers_daily(self) -> Iterator[dict[str, Any]]:
        for breaker in ("host:cdn0003.example.net", "task:chat", "queue:jobqueue:low_priority", *self._names):
            for day in self._days:
                if self._luck.random() < 0.6:
                    opened = self._luck.randrange(1, 9)
                    open_ms = opened * self._luck.randrange(30_000, 900_000)
                    yield {
                        "day": day,
                        "breaker": breaker,
                        "opened": opened,
                        "open_ms": open_ms,
                        "open_at_end": opened // 8,
                    }

    def flows_daily(self) -> Iterator[dict[str, Any]]:
        for day in self._days:
            for flow in ("catalogue", "harvest", *self._names):
                ended = self._busy(day, 50)
                failed = self._part(ended, 0.05)
                counts = {"started": ended + 1, "completed": ended - failed, "failed": failed, "cancelled": 0}
                yield {"day": day, "flow_name": flow, "tenant": "acme", **counts, **self._quantiles("run", 5_000_000)}

    def latency(self) -> Iterator[dict[str, Any]]:
        for day, (tenant, kind, size) in self._each():
            for metric, typical in (("wait", 900), ("run", 20_000), ("attempt", 400)):
                for number, count in self._histogram(typical, max(8, size // 20)).items():
                    host = self._luck.choice(self._hosts) if metric == "attempt" else ""
                    row = {"day": day, "tenant": tenant, "job_type": kind, "host": host, "metric": metric}
                    yield {**row, "bucket": number, "count": count}
        yield from self._flow_latency()

    def _flow_latency(self) -> Iterator[dict[str, Any]]:
        for day in self._days:
            for flow in ("catalogue", "harvest", *self._names):
                row = {"day": day, "tenant": "acme", "job_type": "", "host": flow, "metric": "flow"}
                for number, count in self._histogram(5_000_000, 30).items():
                    yield {**row, "bucket": number, "count": count}

    def _each(self) -> Iterator[tuple[date, tuple[str, str, int]]]:
        return ((day, group) for day in self._days for group in self._groups)

    def _busy(self, day: date, size: int) -> int:
        """Less at weekends."""
        return int(size * self._luck.uniform(0.75, 1.15) * (0.45 if day.weekday() > 4 else 1))

    def _trouble(self, day: date) -> float:
        return 0.22 if day.day == 24 else 0.015

    def _part(self, whole: int, share: float) -> int:
        return int(whole * share * self._luck.uniform(0.4, 1.4))

    def _attempts(self, attempts: int) -> dict[str, Any]:
        retries, failed = self._part(attempts, self._luck.uniform(0, 0.3)), self._part(attempts, 0.03)
        stored = attempts - retries - failed
        return {"attempts": attempts, "stored": stored, "failed": failed, "retries": retries, "bytes": stored * 183_000}

    def _histogram(self, typical: int, size: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for _ in range(size):
            number = bucket(int(self._luck.lognormvariate(math.log(typical), 0.9)))
            counts[number] = counts.get(number, 0) + 1
        return counts

    def _quantiles(self, name: str, typical: int) -> dict[str, int | None]:
        counts = self._histogram(typical, 24)
        return {f"{name}_p{percent}_ms": quantile(counts, percent) for percent in (50, 95, 99)}
