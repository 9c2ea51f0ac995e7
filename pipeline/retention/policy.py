"""How long what is in the lake is kept, from the configuration; and when a day is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final, Self

from fetchbox.config.v1 import config_pb2
from kernel.durations import millis
from pipeline.lake.compaction import OTHERS
from pipeline.tables import TABLES

HOUR_MS: Final = 3_600_000
CLOSED_MS: Final = 24 * HOUR_MS
"""A day is compacted once it ended so long ago: an exporter that lags or comes back has caught up by then."""
ORPHAN_MS: Final = 24 * HOUR_MS
"""Files that no commit names are collected when they are so old: younger ones may be of work that goes on."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """How long one table is kept, and how many bytes of it; 0 bytes mean no cap."""

    retention_ms: int
    max_bytes: int = 0
    tenants: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds of the tenants that have a retention of their own."""

    def of(self, tenant: str) -> int:
        """Milliseconds that rows of a class of tenants are kept."""
        return self.tenants.get(tenant, self.retention_ms)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of tenants, that of all others first."""
        return (OTHERS, *sorted(self.tenants))

    @property
    def longest_ms(self) -> int:
        """Milliseconds after which nothing is kept."""
        return max(self.retention_ms, *self.tenants.values(), 0)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of all tables."""

    tables: Mapping[str, RetentionRule]
    ledger: RetentionRule
    quarantine: RetentionRule
    raw_keep_ms: int
    """How long what no longer counts stays for readers that began before."""

    @classmethod
    def of(cls, lake: config_pb2.Lake) -> Self:
        """The policy of the configuration."""
        return cls(
            tables={table.name: _rule(lake, table.name) for table in TABLES},
            ledger=_own(lake.ledger),
            quarantine=_own(lake.quarantine),
            raw_keep_ms=millis(lake.raw_keep),
        )

    @property
    def longest_ms(self) -> int:
        """Milliseconds after which nothing of any table is kept."""
        rules = [*self.tables.values(), self.ledger, self.quarantine]
        return max(rule.longest_ms for rule in rules)

    def gone(self, day: date, retention_ms: int, now_ms: int) -> bool:
        """Whether a day is over for so long that nobody reads it any more.

        Who reads a day in the last moment of its time has `raw_keep_ms` to finish.
        """
        return over(day, retention_ms + self.raw_keep_ms, now_ms)


def ended_ms(day: date) -> int:
    """When a day ended, in UTC."""
    following = datetime.combine(day, datetime.min.time(), UTC) + timedelta(days=1)
    return round(following.timestamp()) * 1000


def over(day: date, retention_ms: int, now_ms: int) -> bool:
    """Whether a day, in UTC, ended so long ago that its rows are not kept any more."""
    return ended_ms(day) + retention_ms <= now_ms


def _rule(lake: config_pb2.Lake, table: str) -> RetentionRule:
    shape: config_pb2.LakeTable = getattr(lake, table)
    general = millis(shape.retention)
    own = {
        tenant: millis(getattr(overrides, table))
        for tenant, overrides in lake.tenants.items()
        if overrides.HasField(table)  # type: ignore[arg-type]  # the stubs want literals
    }
    return RetentionRule(general, shape.max_bytes, {tenant: kept for tenant, kept in own.items() if kept != general})


def _own(shape: config_pb2.LakeTable) -> RetentionRule:
    return RetentionRule(millis(shape.retention), shape.max_bytes)
