"""The lines of `jobs.logs` that tell how attempts at resources ended. Reports are made of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from fetchbox.jobs.jobs_pb2 import LOG_LEVEL_ERROR, LOG_LEVEL_INFO, LOG_LEVEL_WARN, DownloadTask, JobLog, LogLevel
from kernel import redaction
from kernel.clock import Clock
from kernel.errors import is_retryable
from kernel.foreign_text import fit, fit_fields
from kernel.handlers import StoredObject
from kernel.hostname import UrlError
from kernel.queue.work.types import Claim
from worker_svc.fetch.url import parse
from worker_svc.retries import Retries

DONE: Final = "done"
FAILED: Final = "failed"
RETRY: Final = "retry"


class JobEndings:
    """Words them. `seconds` is how long the attempt took; None where that is not known."""

    def __init__(self, clock: Clock, retries: Retries) -> None:
        self._clock = clock
        self._retries = retries

    def stored(
        self, claim: Claim, stored: StoredObject, seconds: float | None, provenance: Mapping[str, str] | None = None
    ) -> JobLog:
        """Of an attempt that stored its resource; `provenance` is what else is known of the object."""
        fields = {
            "key": stored.key,
            "size": str(stored.size),
            "sha256": stored.sha256,
            "content_type": stored.content_type,
            "final_url": stored.final_url,
            "http_status": str(stored.http_status),
            **_facts(claim, DONE, seconds),
            **(provenance or {}),
        }
        return self._line(claim.task, LOG_LEVEL_INFO, "stored", fields)

    def failed(
        self, claim: Claim, code: str, message: str, seconds: float | None, *, counts: bool, facts: Mapping[str, Any]
    ) -> JobLog:
        """Of an attempt that failed; one that does not count was only put off, and has no outcome."""
        final = counts and (not is_retryable(code) or claim.attempt >= self._retries(claim).max_retries)
        fields = {name: str(value) for name, value in facts.items()}
        fields |= _facts(claim, (FAILED if final else RETRY) if counts else "", seconds)
        fields["code"] = code
        return self._line(
            claim.task,
            LOG_LEVEL_ERROR if final else LOG_LEVEL_WARN,
            f"attempt {claim.attempt + 1} {'failed' if counts else 'was put off'}: {message}",
            fields,
        )

    def _line(self, task: DownloadTask, level: LogLevel.ValueType, message: str, fields: dict[str, str]) -> JobLog:
        return JobLog(
            job_id=task.job_id,
            resource_id=task.resource_id,
            level=level,
            message=redaction.text(fit(message)),
            fields=redaction.fields(fit_fields(fields)),
            timestamp_ms=self._clock.now_ms(),
            trace_id=task.trace_id,
        )


def _facts(claim: Claim, outcome: str, seconds: float | None) -> dict[str, str]:
    facts = {"attempt": str(claim.attempt + 1)}
    if outcome:
        facts["outcome"] = outcome
    if host := _host("/".join(claim.task.url.split("/", 3)[:3])):
        facts["host"] = host
    if seconds is not None:
        facts["duration_ms"] = str(round(seconds * 1000))
    return facts


@lru_cache(4096)
def _host(url: str) -> str:
    """The name under which breakers and limits know the server; empty where the URL has none.

    Without its path, a URL is that of many resources.
    """
    try:
        return parse(url).site
    except UrlError:
        return ""
