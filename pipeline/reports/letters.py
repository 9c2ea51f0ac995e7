"""Dead letters: each once, and which of them nothing has made up for."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from pipeline.reports.days import Days

_PLACE: Final = r"^https?://(?:[^/?#]*@)?(\\[[^\\]]*\\]|[^/?#:]*)(?::([0-9]*))?"
_HOST: Final = rf"regexp_replace(regexp_extract(lower(task.url), '{_PLACE}', 1), '^\\[|\\]$|[.]+$', '')"
_PORT: Final = f"regexp_extract(lower(task.url), '{_PLACE}', 2)"
_OWN_PORT: Final = "if(lower(task.url) like 'https%', '443', '80')"
_SITE: Final = f"coalesce(concat({_HOST}, if({_PORT} in ('', {_OWN_PORT}), '', concat(':', {_PORT}))), '')"
"""The host of the task, as the lines of its attempts name it."""
_ID: Final = "coalesce(nullif(id, ''), concat_ws('/', entry_partition, entry_id))"
_JOB: Final = "nullif(coalesce(task.job_id, queued_task.job_id), '')"
_LETTER: Final = (
    "named_struct('ms', coalesce(failed_at_ms, 0L), 'code', coalesce(failure_code, ''),"
    " 'tenant', coalesce(task.tenant, queued_task.tenant, ''),"
    f" 'job_type', coalesce(task.job_type, queued_task.task, 'unknown'), 'host', {_SITE},"
    f" 'job_id', coalesce({_JOB}, {_ID}), 'resource_id', coalesce(task.resource_id, ''))"
)
"""A letter, in the order of its age."""


def letters(dlq: DataFrame, days: Days, tenant: str = "") -> DataFrame:
    """The dead letters of a period: `day, ms, code, tenant, job_type, host, job_id, resource_id`.

    One that was told more than once counts as it was told first. One that is about no job is its own job. `tenant`: the
    only one that counts; empty for all.
    """
    told = dlq.selectExpr(f"{_ID} as id", f"{_LETTER} as letter").groupBy("id").agg(expr("min(letter) as letter"))
    known = told.selectExpr("letter.*", f"{days.day_sql('letter.ms')} as day").where("day is not null")
    return known.where(known.tenant == tenant) if tenant else known


def dead_letters(letters: DataFrame, lines: DataFrame, days: Days) -> DataFrame:
    """`DEAD_LETTERS` of the letters of a period; `lines` tell what was stored after all."""
    failed = letters.where(f"ms < {days.end_ms}")
    wanted = failed.select("job_id", "resource_id").distinct()
    stored = lines.where(f"outcome = 'done' and ms >= {days.begin_ms} and ms < {days.end_ms}")
    relevant = stored.select("job_id", "resource_id", "ms").join(wanted, ["job_id", "resource_id"], "left_semi")
    later = failed.select("job_id", "resource_id", "ms").union(relevant)
    newest = later.groupBy("job_id", "resource_id").agg(expr("max(ms) as newest_ms"))
    judged = failed.join(newest, ["job_id", "resource_id"]).selectExpr(
        *("tenant", "job_type", "code"), f"case when newest_ms <= ms then {days.end_ms} - ms end as age_ms"
    )
    return judged.groupBy("tenant", "job_type", "code").agg(
        expr("count(*) as letters"),
        expr("count(age_ms) as unresolved"),
        expr("max(age_ms) / 1000D as oldest_age_s"),
        expr("percentile_disc(0.5) within group (order by age_ms) / 1000D as p50_age_s"),
    )
