"""The tables of a report: their columns, and what each is about.

`day` is a day of the report's time zone. `tenant` is empty for none; `job_type` is `unknown` where the lake does not
know the job, and `host` is empty where there is none. Times are in ms, sizes in bytes. There are rows only for what
happened: a day on which nothing did has none. Quantiles are upper edges of buckets (`pipeline.reports.histogram`), and
null of nothing.

An attempt is a log line with an `outcome`: `done`, `failed` (for good) or `retry`. Those of task jobs have no
host. Lines are told at least once, so after a crash of a worker its last attempts may count twice.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_DAY: Final = pa.field("day", pa.date32())
_GROUP: Final = (_DAY, pa.field("tenant", pa.string()), pa.field("job_type", pa.string()))
QUANTILES: Final = (50, 95, 99)
"""Those that the tables have, in percent."""


def quantile_columns(name: str) -> list[str]:
    """The columns of the quantiles of `name`: `wait_p50_ms` and so on."""
    return [f"{name}_p{percent}_ms" for percent in QUANTILES]


def _text(*names: str) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, pa.string()) for name in names)


def _counts(*names: str) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, pa.int64()) for name in names)


def _real(*names: str) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, pa.float64()) for name in names)


JOBS_DAILY: Final = pa.schema(
    [
        *_GROUP,
        *_counts("submitted", "ended", "completed", "partial", "failed", "canceled"),
        *_real("success_rate"),
        *_counts("resources_completed", "resources_failed"),
        *_real("hours", "jobs_per_hour"),
        *_counts("peak_per_minute", *quantile_columns("wait"), *quantile_columns("run")),
    ]
)
"""Jobs. `submitted` is of the day on which a job was queued, everything else of the day on which it ended.

`ended` is the sum of the four outcomes; `success_rate` is `completed` of those that were not canceled, null of none.
`hours` is how long that day was, also where it is not over, `jobs_per_hour` the ended jobs over it, `peak_per_minute`
the most that ended in a minute. A job waits from its acceptance until its first attempt begins and runs from there to
its end; of one that was replayed only the run of its last life counts.
"""

HOSTS_DAILY: Final = pa.schema(
    [
        *_GROUP,
        *_text("host"),
        *_counts("attempts", "stored", "failed", "retries", "bytes"),
        *_real("bytes_per_second"),
        *_counts(*quantile_columns("duration")),
    ]
)
"""Attempts by host: `attempts` is the sum of `stored`, `failed` and `retries`.

`bytes` were stored; `bytes_per_second` is how fast: over the time that the attempts took which stored them, null of 0.
"""

FAILURES_DAILY: Final = pa.schema([*_GROUP, *_text("host", "code"), *_counts("letters", "retries")])
"""Failures by code: `letters` are dead letters (each once), `retries` the attempts that another followed."""

HOSTS: Final = pa.schema(
    [
        *_text("host"),
        *_counts("attempts", "stored", "failed", "retries"),
        *_real("failure_rate"),
        *_counts("bytes", *quantile_columns("duration"), "slowest", "failing"),
    ]
)
"""The hosts of the whole window; attempts without one are left out.

`failure_rate` is the part of the attempts that failed, for good or not. `slowest` and `failing` are ranks from 1: by
`duration_p95_ms` (hosts without one last), and by `failure_rate`, then `failed`; equals in the order of their names.
"""

DEAD_LETTERS: Final = pa.schema(
    [
        *_text("tenant", "job_type", "code"),
        *_counts("letters", "unresolved"),
        *_real("oldest_age_s", "p50_age_s"),
    ]
)
"""The dead letters of the window; the ages are those of the unresolved at its end, null for none.

A letter is resolved once its resource was stored after all, or has a later letter. `p50_age_s` is the age that at least
half of them do not pass.
"""

BREAKERS_DAILY: Final = pa.schema([_DAY, *_text("breaker"), *_counts("opened", "open_ms", "open_at_end")])
"""Circuit breakers: how often each opened, and how long it was open, as told when it closed.

`open_at_end` is 1 where the last that was told of it by the end of the day is that it opened, 0 otherwise.
"""

FLOWS_DAILY: Final = pa.schema(
    [
        _DAY,
        *_text("flow_name", "tenant"),
        *_counts("started", "completed", "failed", "cancelled", *quantile_columns("run")),
    ]
)
"""Flow runs that have ended: `started` is of the day on which one began, everything else of that of its end."""

LATENCY: Final = pa.schema(
    [
        *_GROUP,
        *_text("host", "metric"),
        pa.field("bucket", pa.int32()),
        *_counts("count"),
    ]
)
"""The histograms that the quantiles come from; they may be added up over any columns.

`metric` is `wait` or `run` (of jobs that ended on the day, `host` empty), `attempt`, or `flow` (of flow runs, with
the name of the flow as `host` and an empty `job_type`).
"""

REPORT_TABLES: Final[dict[str, pa.Schema]] = {
    "jobs_daily": JOBS_DAILY,
    "hosts_daily": HOSTS_DAILY,
    "failures_daily": FAILURES_DAILY,
    "hosts": HOSTS,
    "dead_letters": DEAD_LETTERS,
    "breakers_daily": BREAKERS_DAILY,
    "flows_daily": FLOWS_DAILY,
    "latency": LATENCY,
}
"""Every table of a report by its name, in the order in which they are shown."""
