"""The job record, how it is kept in its hash, and how its status is called elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from fetchbox.jobs.jobs_pb2 import JobState, JobStatus
from kernel import places

_UNKNOWN = JobState.JOB_STATE_UNKNOWN
_STATES: dict[str, JobState.ValueType] = {
    "queued": JobState.JOB_STATE_QUEUED,
    "running": JobState.JOB_STATE_IN_PROGRESS,
    "done": JobState.JOB_STATE_COMPLETED,
    "partial": JobState.JOB_STATE_PARTIAL,
    "error": JobState.JOB_STATE_FAILED,
    "canceled": JobState.JOB_STATE_FAILED,
}
_OPERATOR = {"running": "in_progress", "done": "completed", "error": "failed"}
_FROM_STATE = {
    JobState.JOB_STATE_QUEUED: "queued",
    JobState.JOB_STATE_IN_PROGRESS: "running",
    JobState.JOB_STATE_COMPLETED: "done",
    JobState.JOB_STATE_PARTIAL: "partial",
    JobState.JOB_STATE_FAILED: "error",
}
_DEFAULT_RESULTS = "1"
_LATEST = 2**63 - 1
_LONGEST_WAIT_MS = 86_400_000

FETCH = "fetch"
"""The `task` of a fetch job; every other one is that of a task job, or of a step."""
STEP = "step"
"""The `task` of a job that is an attempt at a step of a flow with a handler of its own."""

FIELDS = (
    b"job_id", b"job_type", b"tenant", b"task", b"status", b"created_ts", b"updated_ts", b"resource_total",
    b"resource_completed", b"resource_failed", b"manifest_key", b"results", b"log_offset", b"error", b"trace_id",
    b"rev", b"direct", b"ttl_s", b"flow", b"bucket",
)  # fmt: skip
"""What `from_hash` reads. A task's payload and result are not among it: a listing must not carry them about."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. Times are ms since the epoch by the clock of Redis."""

    job_id: str
    job_type: str = ""
    tenant: str = ""
    task: str = FETCH
    status: str = "queued"
    """`queued`, `running`, `done`, `partial`, `error` or `canceled`."""
    created_ms: int = 0
    updated_ms: int = 0
    resource_total: int = 0
    resource_completed: int = 0
    resource_failed: int = 0
    manifest_key: str = ""
    results_key: str = ""
    log_offset: int = 0
    """The offset just before the job's first log entry."""
    error: bytes = b""
    """Why it failed as the record says it: JSON, or whatever another's worker wrote; empty for nothing."""
    error_code: str = ""
    error_message: str = ""
    trace_id: str = ""
    revision: int = 1
    """Rises with every change of status or counts."""
    direct: bool = False
    """A direct producer's job: ingest never saw it."""
    ttl_s: int = 0
    """How long the record of a task job is kept after its end, in seconds; 0 for a fetch job."""
    flow: str = ""
    """The attempt at a step of a flow that the job is: `{flowId} {stepKey} {attempt}`; empty for none."""
    bucket: str = ""
    """Where the documents of the job lie; empty where that was not recorded, as for jobs of direct producers."""


def log_offset(created_ms: int) -> int:
    """The offset just before anything that was logged since then (`ms << 20 | seq`); what others say may be no time."""
    return min(max(0, (created_ms << 20) - 1), _LATEST)


def manifest_key(bucket: str, job_type: str, job_id: str) -> str:
    """`s3://` URI of a manifest at its default place."""
    return f"s3://{bucket}/{places.document(job_type, job_id)}"


def results_key(bucket: str, job_type: str, job_id: str) -> str:
    """`s3://` URI of a results document at its default place."""
    return f"s3://{bucket}/{places.results(job_type, job_id)}"


def stored_results(record: JobRecord, key: str) -> str:
    """What the record keeps of a results key: values over 64 bytes double a hash, so the default is one letter."""
    is_default = record.bucket and key == results_key(record.bucket, record.job_type, record.job_id)
    return _DEFAULT_RESULTS if is_default else key


def to_fields(record: JobRecord, bucket: str) -> list[str | int]:
    """Field, value, ... of a new record but its tenant; what can be derived is left out."""
    fields: list[str | int] = ["job_id", record.job_id, "task", record.task, "job_type", record.job_type]
    fields += ["resource_total", record.resource_total, "resource_completed", 0, "resource_failed", 0]
    optional: dict[str, str | int] = {
        "trace_id": record.trace_id,
        "log_offset": record.log_offset,
        "bucket": bucket,
    }
    if record.manifest_key != manifest_key(bucket, record.job_type, record.job_id):
        optional["manifest_key"] = record.manifest_key
    for name, value in optional.items():
        if value:
            fields += [name, value]
    return fields


def from_hash(values: Mapping[bytes, bytes], bucket: str) -> JobRecord:
    """The record of a hash. Numbers of others that are none, or have no place in any message, count as not there.

    `bucket` is for records that name none, of an older release: where its documents lie is recorded with each job.
    """

    def text(name: bytes) -> str:
        return values.get(name, b"").decode(errors="replace")

    def number(name: bytes, default: int = 0, digits: int = 15) -> int:
        value = values.get(name, b"")
        return int(value) if value.isdigit() and len(value) <= digits else default

    job_id, task = text(b"job_id"), text(b"task")
    job_type = text(b"job_type") or (task if task != FETCH else "")
    # Only ingest leaves out what can be derived.
    derived = task == FETCH and b"direct" not in values
    recorded = text(b"bucket")
    bucket = recorded or bucket
    error = values.get(b"error", b"")
    code, message = error_of(error)
    results = text(b"results")
    created = number(b"created_ts")
    return JobRecord(
        job_id=job_id,
        job_type=job_type,
        tenant=text(b"tenant"),
        task=task,
        status=text(b"status"),
        created_ms=created,
        updated_ms=number(b"updated_ts"),
        resource_total=number(b"resource_total", digits=9),
        resource_completed=number(b"resource_completed", digits=9),
        resource_failed=number(b"resource_failed", digits=9),
        manifest_key=text(b"manifest_key") or (manifest_key(bucket, job_type, job_id) if derived else ""),
        results_key=results_key(bucket, job_type, job_id) if results == _DEFAULT_RESULTS else results,
        log_offset=min(number(b"log_offset", digits=19), _LATEST) or log_offset(created),
        error=error,
        error_code=code,
        error_message=message,
        trace_id=text(b"trace_id"),
        revision=number(b"rev", 1),
        direct=b"direct" in values,
        ttl_s=number(b"ttl_s", digits=7),
        flow=text(b"flow"),
        bucket=recorded,
    )


def error_json(code: str, message: str, **more: int) -> bytes:
    """The `error` of a record as a JSON string."""
    return orjson.dumps({"code": code, "message": message, **more})


def error_of(text: bytes) -> tuple[str, str]:
    """Code and message of the `error` of a record. Another's worker may write any JSON: then it is the message."""
    if not text:
        return "", ""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return "", text.decode(errors="replace")
    if isinstance(value, str):
        return "", value
    if not isinstance(value, dict) or not ("code" in value or "message" in value):
        return "", text.decode()
    return str(value.get("code") or ""), str(value.get("message") or "")


def wait_of(text: bytes) -> int:
    """How long the next attempt at a step is to wait at least, in ms, by the `error` of the job of the one before."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return 0
    wait = value.get("retry_after_ms") if isinstance(value, dict) else None
    return wait if type(wait) is int and 0 < wait <= _LONGEST_WAIT_MS else 0


def job_state(status: str) -> JobState.ValueType:
    """The state that messages carry for a status of the ledger."""
    return _STATES.get(status, _UNKNOWN)


def ledger_status(state: JobState.ValueType) -> str:
    """The status of the ledger for a state that messages carry; empty for an unknown one."""
    return _FROM_STATE.get(state, "")


def operator_status(status: str) -> str:
    """The ledger's word as operators see it."""
    return _OPERATOR.get(status, status)


def job_status(record: JobRecord) -> JobStatus:
    """The record as an entry of `jobs.status`."""
    return JobStatus(
        job_id=record.job_id,
        job_type=record.job_type,
        state=job_state(record.status),
        resources_total=record.resource_total,
        resources_completed=record.resource_completed,
        resources_failed=record.resource_failed,
        manifest_key=record.manifest_key,
        tenant=record.tenant,
        last_error_code=record.error_code,
        last_error_message=record.error_message,
        log_offset=record.log_offset,
        timestamp_ms=record.updated_ms,
        revision=record.revision,
    )
