"""A lake of any size for the benchmark of reports: a month of jobs as workers tell of them, written by DuckDB.

Everything follows from numbers of rows, so the same size is always the same lake. A tenth of the rows are jobs with
three statuses and seven log lines each; each type of each tenant has ten hosts; tenants and hosts are uneven.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Final

import duckdb

from pipeline.reports.days import Days
from pipeline.reports.report import Period

PERIOD: Final = Period(date(2026, 10, 1), date(2026, 10, 30), "Europe/Berlin")
_FILES: Final = 8
_LUCK: Final = """
create macro dice(n, salt, sides) as (hash(n, salt) % sides::ubigint)::bigint;
create macro chance(n, salt) as dice(n, salt, 1000003) / 1000003;
create macro site(tenant, job_type, n) as 'cdn' || n || '.' || job_type || '.' || tenant || '.example';
"""
_JOBS: Final = """
create table jobs as
    select n, printf('0198f2c4-%04x-7000-8000-%012x', n % 65536, n) as job_id,
        'tenant-' || floor(40 * pow(chance(n, 0), 3))::int as tenant,
        ['default', 'gallery', 'feeds', 'mirror'][1 + dice(n, 1, 4)] as job_type,
        $begin + dice(n, 2, $days * 86400000::bigint) as queued,
        queued + (exp(4 + 8 * chance(n, 3)))::bigint as started,
        started + (exp(6 + 8 * chance(n, 4)))::bigint as ended,
        dice(n, 5, 100) as luck
    from range($jobs) t(n)
"""
_STATUS: Final = """
select job_id, job_type, tenant, case rank when 1 then 'JOB_STATE_QUEUED' when 2 then 'JOB_STATE_IN_PROGRESS'
        else case when luck < 90 then 'JOB_STATE_COMPLETED' when luck < 96 then 'JOB_STATE_PARTIAL'
            else 'JOB_STATE_FAILED' end end as state,
    7::bigint as resources_total, 0::bigint as log_offset,
    case when rank = 3 then 7 - (luck >= 90)::int else 0 end::bigint as resources_completed,
    case when rank = 3 then (luck >= 90)::int else 0 end::bigint as resources_failed,
    case when luck = 99 then 'SYSTEM_CANCELED' else '' end as last_error_code,
    case rank when 1 then queued when 2 then started else ended end as timestamp_ms, rank::bigint as revision
from jobs, range(1, 4) r(rank)
"""
_LOGS: Final = """
with lines as (
    select *,
        case when dice(7 * n + r, 6, 100) < 10 then 'retry' when luck >= 90 and r = 6 then 'failed' else 'done' end
            as outcome,
        site(tenant, job_type, floor(10 * pow(chance(7 * n + r, 7), 4))::int) as host,
        (exp(3 + 7 * chance(7 * n + r, 8)))::bigint as duration,
        ['HTTP_503', 'HTTP_404', 'DOWNLOAD_TIMEOUT', 'DOWNLOAD_DNS'][1 + dice(7 * n + r, 9, 4)] as code
    from jobs, range(7) t(r)
)
select job_id, 'image-' || r as resource_id, started + r * (ended - started) // 7 as timestamp_ms,
    case when outcome = 'done'
        then map {'outcome': outcome, 'attempt': '1', 'host': host, 'duration_ms': duration::varchar,
            'size': (1000 * duration)::varchar, 'sha256': md5(job_id) || md5(host), 'http_status': '200'}
        else map {'outcome': outcome, 'attempt': '1', 'host': host, 'duration_ms': duration::varchar, 'code': code}
        end as fields
from lines
"""
_DLQ: Final = """
select 0 as entry_partition, ended || '-' || n as entry_id, 'HTTP_404' as failure_code, ended as failed_at_ms,
    job_id || '/image-6/0' as id, {'job_id': job_id, 'resource_id': 'image-6', 'job_type': job_type, 'tenant': tenant,
        'url': 'https://' || site(tenant, job_type, dice(n, 7, 10)) || '/image-6.jpg'} as task,
    {'job_id': null::varchar, 'task': null::varchar, 'tenant': null::varchar} as queued_task
from jobs where luck >= 90
"""
_FLOWS: Final = """
select make_timestamptz((1000 * case kind when 'flow.start' then queued else ended end)::bigint) as entry_time,
    'run-' || n as flow_id, 'nightly' as flow_name, tenant, kind
from jobs, (values ('flow.start'), ('flow.complete')) k(kind) where n % 50 = 0
"""
_QUERIES: Final = {"status": _STATUS, "logs": _LOGS, "dlq": _DLQ, "flows": _FLOWS}


def write(folder: Path, rows: int) -> int:
    """About so many rows, a folder of files for each table; how many it really were."""
    begin = Days.of(PERIOD).begin_ms
    with duckdb.connect() as duck:
        duck.execute(_LUCK)
        duck.execute(_JOBS, {"jobs": max(1, rows // 10), "begin": begin, "days": PERIOD.days})
        return sum(_copy(duck, folder / name, query) for name, query in _QUERIES.items())


def _copy(duck: duckdb.DuckDBPyConnection, folder: Path, query: str) -> int:
    folder.mkdir(parents=True)
    count = 0
    for number in range(_FILES):
        part = f"with part as ({query}) select * from part".replace(
            "from jobs", f"from (from jobs where n % {_FILES} = {number}) jobs"
        )
        target = f"'{folder}/{number:05}.parquet' (format parquet, compression zstd)"
        count += duck.execute(f"copy ({part}) to {target}").fetchall()[0][0]
    return count
