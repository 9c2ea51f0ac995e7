"""Jobs as the clients of the task service see them, and who may see which."""

import orjson

from fetchbox.errors.v1 import errors_pb2
from fetchbox.task.v1.job_pb2 import Job
from flows.model import label
from kernel.auth import TENANT, Caller
from kernel.errors import FetchboxError
from kernel.ledger import JobRecord, TaskRecord
from kernel.ledger.tasks import json_value


def whole(task: TaskRecord) -> Job:
    """A job with payload and result."""
    job = listed(task.record)
    job.payload, job.result, job.error = task.payload, task.result, task.error
    return job


def listed(record: JobRecord) -> Job:
    """A job without payload and result."""
    return Job(
        job_id=record.job_id,
        task=record.task,
        status=record.status,
        created_ts=record.created_ms,
        updated_ts=record.updated_ms,
        ttl_s=record.ttl_s,
        error=json_value(record.error),
        tenant=record.tenant,
        trace_id=record.trace_id,
        flow=label.shown(record.flow) or None,
    )


def snapshot_json(record: JobRecord) -> bytes:
    """A job without payload and result as ProtoJSON: the data of an event `gap`."""
    job = listed(record)
    return orjson.dumps(
        {
            "job_id": job.job_id,
            "task": job.task,
            "payload": None,
            "status": job.status,
            "created_ts": str(job.created_ts),
            "updated_ts": str(job.updated_ts),
            "ttl_s": job.ttl_s,
            "result": None,
            "error": orjson.Fragment(job.error) if job.error else None,
            "tenant": job.tenant,
            "trace_id": job.trace_id,
            **({"flow": job.flow} if job.flow else {}),
        }
    )


def may_see(caller: Caller, record: JobRecord) -> bool:
    """Whether a job is the caller's to see: a tenant's token opens the jobs of its tenant alone."""
    return caller.role != TENANT or record.tenant == caller.tenant


def tenant_filter(caller: Caller, asked: str) -> str:
    """The tenant whose jobs a listing shows, empty for all; `FORBIDDEN` for another than the caller's."""
    if caller.role != TENANT:
        return asked
    if asked and asked != caller.tenant:
        raise FetchboxError(
            errors_pb2.REASON_FORBIDDEN, f"the credential is that of the tenant {caller.tenant!r}, not of {asked!r}"
        )
    return caller.tenant
