"""The snapshot of one job: the ledger's record as operators see it."""

from google.protobuf import json_format

from fetchbox.operator.v1.job_pb2 import Job, JobError, LogCursor
from flows.model import label
from kernel import redaction
from kernel.errors import no_job, operator_code
from kernel.ledger import JobRecord, Ledger, operator_status
from kernel.redis import keys
from operator_svc.times import timestamp

_UNNAMED = "HANDLER_ERROR"
"""The code of a failure to which the worker gave none, as workers that are not ours may."""


def snapshot(record: JobRecord) -> Job:
    """A record with the operators' status word, its failure code as `HTTP_403`, and the cursor of its log."""
    return Job(
        job_id=record.job_id,
        job_type=record.job_type,
        status=operator_status(record.status),
        created_at=timestamp(record.created_ms),
        updated_at=timestamp(record.updated_ms),
        resource_total=record.resource_total,
        resource_completed=record.resource_completed,
        resource_failed=record.resource_failed,
        manifest_key=record.manifest_key,
        results_key=record.results_key,
        log_cursor=LogCursor(stream=keys.LOGS, offset=record.log_offset),
        last_error=last_error(record),
        tenant=record.tenant,
        trace_id=record.trace_id,
        task=record.task,
        flow=label.shown(record.flow) or None,
    )


def snapshot_json(record: JobRecord) -> bytes:
    """The snapshot as JSON, its zeros included."""
    text = json_format.MessageToJson(snapshot(record), always_print_fields_with_no_presence=True, indent=None)
    return text.encode()


def last_error(record: JobRecord) -> JobError | None:
    """The newest failure; None where there is none."""
    if not record.error_code and not record.error_message:
        return None
    code = record.error_code or _UNNAMED
    return JobError(code=operator_code(code), message=redaction.text(record.error_message))


async def require(ledger: Ledger, job_id: str) -> JobRecord:
    """The record of a job. Raises `NOT_FOUND` for an id that is unknown or pruned."""
    record = await ledger.get(job_id)
    if record is None:
        raise no_job(job_id)
    return record
