"""Entries of streams as FetchBox fills them, for benchmarks: of the jobs of a manifest each, with ids of one day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobStatus, LogLevel
from ingest_svc.tasks import stock_tasks
from kernel.handlers import DefaultHandler, Manifest, Resource
from kernel.log.messages import PAYLOAD, TRACEPARENT
from kernel.queue.streams import publications
from pipeline.schema.rows import Row
from pipeline.tables import DLQ, LOGS, STATUS, TASKS, Table

START_MS: Final = 1_764_374_400_000
"""2025-11-29, its first millisecond."""
_OF_A_JOB: Final = 100
_PLAIN: Final = "https://cdn.example.com/gallery/2024/05/01/image-{number:06d}.jpg?size=large"
_SIGNED: Final = (
    "https://bucket.s3.eu-central-1.amazonaws.com/gallery/image-{number:06d}.jpg?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20251129%2Feu-central-1%2Fs3%2Faws4_request&X-Amz-Date=20251129T000000Z"
    "&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature={number:064x}"
)
_TYPE: Final = JobType(default_headers={"user-agent": "fetchbox"}, storage={"key_prefix": "resources/"})


def entries(table: Table, count: int, *, signed: bool = False) -> list[Row]:
    """So many entries of a table; `signed`: every URL in them has a signature."""
    url = _SIGNED if signed else _PLAIN
    made = {TASKS: _tasks, STATUS: _status, LOGS: _logs, DLQ: _letters}[table](count, url)
    return [
        Row(
            number % 16, f"{START_MS + number // 4}-{number % 4}", {PAYLOAD: payload, TRACEPARENT: _traceparent(number)}
        )
        for number, payload in enumerate(made)
    ]


def _traceparent(number: int) -> bytes:
    return f"00-{_trace(number)}-{number:016x}-01".encode()


def _job(number: int) -> str:
    return f"019acd0e-8c00-7{number // _OF_A_JOB % 4096:03x}-8000-{number // _OF_A_JOB:012x}"


def _trace(number: int) -> str:
    return f"{0xACE + number // _OF_A_JOB:032x}"


def _tasks(count: int, url: str) -> Iterator[bytes]:
    for first in range(0, count, _OF_A_JOB):
        numbers = range(first, min(first + _OF_A_JOB, count))
        resources = tuple(Resource(f"r{n}", url.format(number=n), {}, {"shelf": str(n % 7)}) for n in numbers)
        key = f"s3://fetchbox/manifests/default/{_job(first)}.json"
        view = Manifest(_job(first), "default", resources, _TYPE, "acme", _trace(first), key)
        yield from stock_tasks(DefaultHandler({}), view)


def _status(count: int, _: str) -> Iterator[bytes]:
    for number in range(count):
        own = JobStatus(
            job_id=_job(number),
            resources_total=_OF_A_JOB,
            resources_completed=number % _OF_A_JOB,
            manifest_key=f"s3://fetchbox/manifests/default/{_job(number)}.json",
            log_offset=START_MS << 20,
            timestamp_ms=START_MS + number,
            revision=number % _OF_A_JOB + 1,
        )
        yield publications.common_status("default", "acme", "running") + own.SerializeToString()


def _logs(count: int, url: str) -> Iterator[bytes]:
    for number in range(count):
        task = DownloadTask(job_id=_job(number), resource_id=f"r{number}", trace_id=_trace(number))
        facts = {
            "outcome": "done",
            "attempt": "1",
            "host": "cdn.example.com",
            "duration_ms": str(50 + number % 977),
            "size": str(10_000 + number),
            "final_url": url.format(number=number),
        }
        yield publications.log_line(task, LogLevel.LOG_LEVEL_INFO, "stored", START_MS + number, facts)


def _letters(count: int, url: str) -> Iterator[bytes]:
    for number, task in enumerate(_tasks(count, url)):
        yield DeadLetterTask(
            task=DownloadTask.FromString(task),
            failure_code="HTTP_404",
            failure_message=f"GET {url.format(number=number)} was answered with 404",
            attempts=3,
            failed_at_ms=START_MS + number,
            id=f"{_job(number)}/r{number}/0",
        ).SerializeToString()
