"""The calls about fetch jobs, task jobs and dead letters."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from google.api.httpbody_pb2 import HttpBody

from fetchbox.ingest.v1 import ingest_service_pb2 as ingest
from fetchbox.operator.v1 import job_pb2
from fetchbox.operator.v1 import operator_service_pb2 as operator
from fetchbox.task.v1 import task_service_pb2 as tasks
from fetchbox.task.v1.job_pb2 import Job
from fetchbox_client.calls import Call, Method, Stream, cursor_of
from fetchbox_client.errors import JobFailedError
from fetchbox_client.events import ENDS, Event, read_json, write_json

ENDED = frozenset({"done", "partial", "error", "canceled"})
"""The statuses of a job that has ended."""
Manifest = Mapping[str, Any] | bytes
"""The document: a JSON object, `manifest_version` being `v1` where it says none; or its bytes, taken as they are."""

_SUBMIT = Method("IngestService/SubmitJob", ingest.SubmitJobResponse)
_CREATE = Method("TaskService/CreateJob", Job)
_GET = Method("TaskService/GetJob", Job)
_LIST = Method("TaskService/ListJobs", tasks.ListJobsResponse)
_CANCEL = Method("TaskService/CancelJob", Job)
_WATCH = Method("TaskService/WatchJob", job_pb2.JobEvent)
_SNAPSHOT = Method("OperatorService/GetJob", job_pb2.Job)
_DEAD = Method("OperatorService/ListDeadLetters", operator.ListDeadLettersResponse)
_REPLAY = Method("OperatorService/ReplayDeadLetters", operator.ReplayDeadLettersResponse)
_PURGE = Method("OperatorService/PurgeDeadLetters", operator.PurgeDeadLettersResponse)


def new_key() -> str:
    """An idempotency key that nobody has used."""
    return uuid.uuid4().hex


def submit(manifest: Manifest, job_type: str, tenant: str, key: str | None) -> Call[ingest.SubmitJobResponse]:
    """Submits a manifest."""
    document = manifest if isinstance(manifest, bytes) else json.dumps({"manifest_version": "v1", **manifest}).encode()
    key = key or new_key()
    body = HttpBody(content_type="application/json", data=document)
    request = ingest.SubmitJobRequest(job_type=job_type, tenant=tenant, idempotency_key=key, document=body)
    return Call(_SUBMIT, request, key=key)


def create(task: str, payload: Any, ttl_s: int | None, key: str | None) -> Call[Job]:
    """Creates a task job."""
    key = key or new_key()
    request = tasks.CreateJobRequest(task=task, payload=write_json(payload), ttl_s=ttl_s, idempotency_key=key)
    return Call(_CREATE, request, key=key)


def get(job_id: str) -> Call[Job]:
    """Reads a job."""
    return Call(_GET, tasks.GetJobRequest(job_id=job_id))


def page(task: str, status: str, tenant: str, size: int, token: str) -> Call[tasks.ListJobsResponse]:
    """Reads one page of jobs."""
    request = tasks.ListJobsRequest(task=task, status=status, tenant=tenant, page_size=size, page_token=token)
    return Call(_LIST, request)


def cancel(job_id: str) -> Call[Job]:
    """Cancels a job."""
    return Call(_CANCEL, tasks.CancelJobRequest(job_id=job_id))


def watch(job_id: str) -> Stream[job_pb2.JobEvent, Event]:
    """The events of a job."""
    return Stream(
        _WATCH,
        lambda cursor: tasks.WatchJobRequest(job_id=job_id, last_event_id=cursor),
        cursor_of,
        lambda event: event.type in ENDS,
        get(job_id),
        lambda job: job.status in ENDED,
        Event.of,
    )


def snapshot(job_id: str) -> Call[job_pb2.Job]:
    """Reads a job as operators see it."""
    return Call(_SNAPSHOT, operator.GetJobRequest(job_id=job_id))


def dead_letters(job_id: str, code: str, size: int, token: str) -> Call[operator.ListDeadLettersResponse]:
    """Reads one page of dead letters."""
    request = operator.ListDeadLettersRequest(job_id=job_id, failure_code=code, page_size=size, page_token=token)
    return Call(_DEAD, request)


def replay(positions: Sequence[str], job_id: str, *, force: bool) -> Call[operator.ReplayDeadLettersResponse]:
    """Replays dead letters."""
    return Call(_REPLAY, operator.ReplayDeadLettersRequest(positions=positions, job_id=job_id, force=force))


def purge(positions: Sequence[str], job_id: str, before_ms: int) -> Call[operator.PurgeDeadLettersResponse]:
    """Deletes dead letters."""
    return Call(_PURGE, operator.PurgeDeadLettersRequest(positions=positions, job_id=job_id, before_ms=before_ms))


def result_of(job: Job) -> Any:
    """The result of a job that is done; raises `JobFailedError` for another one."""
    if job.status == "done":
        return read_json(job.result)
    error = read_json(job.error)
    said: dict[str, Any] = error if isinstance(error, dict) else {}
    raise JobFailedError(job.job_id, job.status, str(said.get("code", "")), str(said.get("message", "")))
