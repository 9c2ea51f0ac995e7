"""What a report must say, computed by DuckDB from the same Parquet, from the definitions and with none of our code.

Quantiles are exact ones here; a cell of a report must be the upper edge of the bucket that the exact one is in.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipeline.reports.report import Period
from pipeline.reports.tables import REPORT_TABLES

_MACROS = """
create macro local_day(ms) as case when ms < 4102444800000 then
    cast(timezone(getvariable('zone'), timezone('UTC', epoch_ms(ms))) as date) end;
create macro in_period(day) as day between getvariable('first') and getvariable('last');
create macro midnight(day) as epoch_ms(timezone(getvariable('zone'), cast(day as timestamp)));
create macro bucket(ms) as case when ms < 8 then ms
    else (length(bin(ms)) - 3) * 8 + ((ms >> (length(bin(ms)) - 4)) & 7) end;
create macro width(ms) as case when ms < 8 then 1 else 1::hugeint << (length(bin(ms)) - 4) end;
create macro edge(ms) as cast((ms // width(ms) + 1) * width(ms) - 1 as bigint);
create macro p(ms, q) as edge(quantile_disc(ms, q));
create macro mine(tenant) as getvariable('tenant') = '' or tenant = getvariable('tenant');
create macro number(text) as case when regexp_full_match(text, '[0-9]{1,14}') then cast(text as bigint) end;
create macro period_begin() as midnight(getvariable('first'));
create macro period_end() as least(midnight(getvariable('last') + 1), getvariable('now'));
"""
_FACTS = """
create table days as
    select day, midnight(day) as opens, midnight(day + 1) as closes
    from (select unnest(generate_series(getvariable('first'), getvariable('last'), interval 1 day))::date as day);

create table job as
    with ranked as (
        select *, case state when 'JOB_STATE_QUEUED' then 1 when 'JOB_STATE_IN_PROGRESS' then 2
            when 'JOB_STATE_PARTIAL' then 3 when 'JOB_STATE_COMPLETED' then 4 when 'JOB_STATE_FAILED' then 5 else 0 end
            as rank
        from status where job_id != ''
    ), newest as (
        select *, row_number() over (partition by job_id order by revision desc, timestamp_ms desc, rank desc,
            resources_completed desc, resources_failed desc, last_error_code desc, tenant desc, job_type desc,
            resources_total desc) as age
        from ranked
    ), times as (
        select job_id, min(timestamp_ms) as first_ms,
            min(timestamp_ms) filter (where state = 'JOB_STATE_QUEUED') as queued,
            min(log_offset) filter (where log_offset > 0) // 1048576 as created
        from status where job_id != '' group by all
    ), accepts as (
        select job_id, coalesce(queued, case when resources_total = 0 then created end) as accepted
        from newest join times using (job_id) where age = 1
    ), former as (
        select newest.job_id, max(ranked.timestamp_ms) as replayed
        from newest join ranked using (job_id)
        where newest.age = 1 and ranked.rank >= 3 and ranked.revision < newest.revision group by all
    ), begins as (
        select job_id, timestamp_ms as ms, timestamp_ms as told_ms from ranked where rank = 2
        union all
        select job_id, greatest(timestamp_ms - number(fields['duration_ms']), 0), timestamp_ms from logs
        where fields['outcome'] in ('done', 'failed', 'retry') and number(fields['duration_ms']) is not null
    ), lives as (
        select job_id, min(ms) as started from begins left join former using (job_id)
        where replayed is null or told_ms > replayed group by all
    )
    select job_id, tenant, job_type, resources_completed, resources_failed,
        case when rank = 3 then 'partial' when rank = 4 then 'completed'
            when rank = 5 and last_error_code = 'SYSTEM_CANCELED' then 'canceled'
            when rank = 5 then 'failed' end as outcome,
        local_day(coalesce(accepted, first_ms)) as submit_day,
        case when rank >= 3 then timestamp_ms end as ended,
        local_day(case when rank >= 3 then timestamp_ms end) as end_day,
        case when started is not null and accepted is not null
                and replayed is null
            then case when started > accepted then started - accepted else 0 end end as wait,
        case when started is not null and rank >= 3
            then case when timestamp_ms > started then timestamp_ms - started else 0 end end as run
    from newest join times using (job_id) join accepts using (job_id)
        left join former using (job_id) left join lives using (job_id)
    where age = 1 and mine(tenant);

create table attempt as
    select local_day(timestamp_ms) as day,
        coalesce(job.tenant, '') as tenant, coalesce(job.job_type, 'unknown') as job_type,
        coalesce(fields['host'], '') as host, coalesce(fields['code'], '') as code, fields['outcome'] as outcome,
        number(fields['duration_ms']) as duration, number(fields['size']) as size
    from logs left join job using (job_id)
    where fields['outcome'] in ('done', 'failed', 'retry') and in_period(local_day(timestamp_ms))
        and mine(coalesce(job.tenant, ''));

create table letter as
    with told as (
        select *, coalesce(task.job_id, queued_task.job_id, '') as owner,
            lower(regexp_extract(task.url, '(?i)^https?://([^/?#]*)', 1)) as place,
            task.url ilike 'https:%' as secure
        from dlq
    ), parts as (
        select *, regexp_replace(place, '^.*@', '') as site from told
    ), sites as (
        select *, regexp_extract(site, ':([0-9]*)$', 1) as port,
            regexp_replace(site, ':[0-9]*$', '') as name
        from parts
    )
    select distinct on (id) id, failed_at_ms as ms, local_day(failed_at_ms) as day, failure_code as code,
        coalesce(task.tenant, queued_task.tenant, '') as tenant,
        coalesce(task.job_type, queued_task.task, 'unknown') as job_type,
        coalesce(rtrim(case when name[1] = '[' then name[2:-2] else name end, '.')
            || case when port = '' or port = case when secure then '443' else '80' end then '' else ':' || port end, '')
            as host,
        case when owner = '' then id else owner end as owner, coalesce(task.resource_id, '') as resource
    from sites order by id, ms, code, tenant, job_type, host, owner, resource;

create table event as
    select fields['breaker'] as breaker, fields['event'] as kind, timestamp_ms as ms,
        number(fields['open_ms']) as open_ms
    from logs where fields['breaker'] != '' and fields['event'] in ('opened', 'closed');

create table run as
    with events as (
        select *, epoch_ms(entry_time) as ms, kind in ('flow.complete', 'flow.failed', 'flow.cancelled') as final
        from flows
    )
    select flow_id, flow_name, tenant, min(ms) filter (where kind = 'flow.start') as started,
        min(ms) filter (where final) as ended, arg_min(kind, ms) filter (where final) as kind
    from events where mine(tenant) group by flow_id, flow_name, tenant;
"""
_QUANTILES = "p({0}, 0.5) as {1}_p50_ms, p({0}, 0.95) as {1}_p95_ms, p({0}, 0.99) as {1}_p99_ms"
_TABLES = {
    "jobs_daily": f"""
        with submits as (
            select submit_day as day, tenant, job_type, count(*) as submitted from job where in_period(submit_day)
            group by all
        ), minutes as (
            select end_day as day, tenant, job_type, count(*) as ends from job where in_period(end_day)
            group by end_day, tenant, job_type, ended // 60000
        ), peaks as (
            select day, tenant, job_type, max(ends) as peak_per_minute from minutes group by all
        ), ends as (
            select end_day as day, tenant, job_type, count(*) as ended,
                count(*) filter (where outcome = 'completed') as completed,
                count(*) filter (where outcome = 'partial') as partial,
                count(*) filter (where outcome = 'failed') as failed,
                count(*) filter (where outcome = 'canceled') as canceled,
                sum(resources_completed) as resources_completed, sum(resources_failed) as resources_failed,
                {_QUANTILES.format("wait", "wait")}, {_QUANTILES.format("run", "run")}
            from job where in_period(end_day) group by all
        )
        select day, tenant, job_type, coalesce(submitted, 0) as submitted, coalesce(ended, 0) as ended,
            coalesce(completed, 0) as completed, coalesce(partial, 0) as partial, coalesce(failed, 0) as failed,
            coalesce(canceled, 0) as canceled,
            case when completed + partial + failed > 0
                then completed / (completed + partial + failed) end as success_rate,
            coalesce(resources_completed, 0) as resources_completed, coalesce(resources_failed, 0) as resources_failed,
            (closes - opens) / 3600000 as hours, coalesce(ended, 0) / ((closes - opens) / 3600000) as jobs_per_hour,
            coalesce(peak_per_minute, 0) as peak_per_minute,
            columns('^(wait|run)_p')
        from submits full join ends using (day, tenant, job_type) left join peaks using (day, tenant, job_type)
            join days using (day)""",
    "hosts_daily": f"""
        select day, tenant, job_type, host, count(*) as attempts, count(*) filter (where outcome = 'done') as stored,
            count(*) filter (where outcome = 'failed') as failed, count(*) filter (where outcome = 'retry') as retries,
            coalesce(sum(size) filter (where outcome = 'done'), 0) as bytes,
            case when sum(duration) filter (where outcome = 'done') > 0 then
                bytes / (sum(duration) filter (where outcome = 'done') / 1000) end as bytes_per_second,
            {_QUANTILES.format("duration", "duration")}
        from attempt group by day, tenant, job_type, host""",
    "failures_daily": """
        with every as (
            select day, tenant, job_type, host, code, 1 as letter, 0 as retry from letter
            where in_period(day) and mine(tenant)
            union all
            select day, tenant, job_type, host, code, 0, 1 from attempt where outcome = 'retry'
        )
        select day, tenant, job_type, host, code, sum(letter) as letters, sum(retry) as retries
        from every group by all""",
    "hosts": f"""
        with known as (
            select host, count(*) as attempts, count(*) filter (where outcome = 'done') as stored,
                count(*) filter (where outcome = 'failed') as failed,
                count(*) filter (where outcome = 'retry') as retries,
                count(*) filter (where outcome != 'done') / count(*) as failure_rate,
                coalesce(sum(size) filter (where outcome = 'done'), 0) as bytes,
                {_QUANTILES.format("duration", "duration")}
            from attempt where host != '' group by host
        )
        select *,
            1 + (select count(*) from known other
                where coalesce(other.duration_p95_ms, -1) > coalesce(known.duration_p95_ms, -1)
                or (other.duration_p95_ms is not distinct from known.duration_p95_ms and other.host < known.host)
            ) as slowest,
            1 + (select count(*) from known other
                where other.failure_rate > known.failure_rate
                or other.failure_rate = known.failure_rate and other.failed > known.failed
                or other.failure_rate = known.failure_rate and other.failed = known.failed and other.host < known.host
            ) as failing
        from known""",
    "dead_letters": """
        with judged as (
            select *, not exists (
                    from logs where job_id = owner and resource_id = resource and fields['outcome'] = 'done'
                    and timestamp_ms > letter.ms and timestamp_ms < period_end()
                ) and not exists (
                    from letter later where later.owner = letter.owner and later.resource = letter.resource
                    and later.ms > letter.ms and later.ms < period_end()
                ) as unresolved
            from letter where in_period(day) and ms < period_end() and mine(tenant)
        )
        select tenant, job_type, code, count(*) as letters, count(*) filter (where unresolved) as unresolved,
            max((period_end() - ms) / 1000) filter (where unresolved) as oldest_age_s,
            quantile_disc((period_end() - ms) / 1000, 0.5) filter (where unresolved) as p50_age_s
        from judged group by tenant, job_type, code""",
    "breakers_daily": """
        with open_times as (
            select day, breaker, sum(least(ms, closes) - greatest(ms - open_ms, opens)) as open_ms
            from event join days on ms - open_ms < closes and ms > opens
            where kind = 'closed' and open_ms > 0 group by all
        ), openings as (
            select local_day(ms) as day, breaker, count(*) as opened from event
            where kind = 'opened' and in_period(local_day(ms)) group by all
        ), ends as (
            select day, breaker, last(kind order by ms, kind = 'closed') as kind
            from days join event on ms < least(closes, period_end()) where opens < period_end() group by day, breaker
        ), left_open as (
            select day, breaker, 1 as open_at_end from ends where kind = 'opened'
        )
        select day, breaker, coalesce(opened, 0) as opened, coalesce(open_ms, 0) as open_ms,
            coalesce(open_at_end, 0) as open_at_end
        from open_times full join openings using (day, breaker) full join left_open using (day, breaker)
        where getvariable('tenant') = '' or breaker in (select 'host:' || host from attempt where host != '')""",
    "flows_daily": f"""
        with starts as (
            select local_day(started) as day, flow_name, tenant, count(*) as started from run
            where in_period(local_day(started)) group by all
        ), ends as (
            select local_day(ended) as day, flow_name, tenant,
                count(*) filter (where kind = 'flow.complete') as completed,
                count(*) filter (where kind = 'flow.failed') as failed,
                count(*) filter (where kind = 'flow.cancelled') as cancelled,
                {_QUANTILES.format("greatest(ended - started, case when started is null then null else 0 end)", "run")}
            from run where in_period(local_day(ended)) group by all
        )
        select day, flow_name, tenant, coalesce(started, 0) as started, coalesce(completed, 0) as completed,
            coalesce(failed, 0) as failed, coalesce(cancelled, 0) as cancelled, columns('^run_p')
        from starts full join ends using (day, flow_name, tenant)""",
    "latency": """
        with times as (
            select end_day as day, tenant, job_type, '' as host, 'wait' as metric, wait as ms from job
            union all select end_day, tenant, job_type, '', 'run', run from job
            union all select day, tenant, job_type, host, 'attempt', duration from attempt
            union all select local_day(ended), tenant, '', flow_name, 'flow', greatest(ended - started, 0) from run
                where started is not null
        )
        select day, tenant, job_type, host, metric, bucket(ms)::integer as bucket, count(*) as count from times
        where in_period(day) and ms is not null group by all""",
}


def answers(
    lake: Mapping[str, Path], period: Period, tenant: str = "", now_ms: int | None = None
) -> dict[str, pa.Table]:
    """The tables of a report of the Parquet files in `lake`, by name; neither rows nor columns are in order."""
    with duckdb.connect(config={"threads": 2}) as duck:
        for name, path in lake.items():
            duck.execute(f"create view {name} as from read_parquet('{path}')")
        values: dict[str, str | date | int] = {
            "first": period.first,
            "last": period.last,
            "zone": period.zone,
            "tenant": tenant,
            "now": 2**62 if now_ms is None else now_ms,
        }
        for name, value in values.items():
            duck.execute(f"set variable {name} = $value", {"value": value})
        duck.execute(_MACROS)
        duck.execute(_FACTS)
        return {name: duck.sql(query).to_arrow_table() for name, query in _TABLES.items()}


def differences(name: str, ours: pa.Table, theirs: pa.Table) -> Iterator[str]:
    """The cells of a table that differ. Rows and columns of both may be in any order."""
    one_side, other_side = _rows(name, ours), _rows(name, theirs)
    if len(one_side) != len(other_side):
        yield f"{name}: {len(one_side)} rows, not {len(other_side)}"
    for one, other in zip(one_side, other_side, strict=False):
        yield from (
            f"{name}.{column}: {value!r}, not {other[column]!r}, in {one}"
            for column, value in one.items()
            if not _equal(value, other[column])
        )


def _rows(name: str, table: pa.Table) -> list[dict[str, Any]]:
    schema = REPORT_TABLES[name]
    keys = [field.name for field in schema if field.type in {pa.date32(), pa.string(), pa.int32()}]
    ordered = table.select(schema.names).cast(schema).sort_by([(key, "ascending") for key in keys])
    return list(ordered.to_pylist())


def _equal(value: Any, expected: Any) -> bool:
    if isinstance(value, float) and isinstance(expected, float):
        return math.isclose(value, expected, rel_tol=1e-9)
    return bool(value == expected)
