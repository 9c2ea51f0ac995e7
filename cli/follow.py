"""Following one job to its end by its events, across restarts of the operator service."""

import time
from collections.abc import Callable

import grpc

from fetchbox.operator.v1.job_pb2 import Job
from fetchbox.operator.v1.operator_service_pb2 import GetJobRequest, WatchJobRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

ENDED = frozenset({"completed", "partial", "failed", "canceled"})
_TERMINAL_EVENTS = frozenset({"done", "error", "canceled"})
_LEAST_PAUSE = 0.2
_PATIENCE = 30.0


def follow(stub: OperatorServiceStub, job_id: str, changed: Callable[[Job], None]) -> Job:
    """Calls `changed` with snapshots of the job, a few a second at most, and returns the last one.

    An operator service that goes away is waited for, 30 seconds long; then its error is raised.
    """
    job = stub.GetJob(GetJobRequest(job_id=job_id))
    changed(job)
    cursor, down_since = "", 0.0
    while job.status not in ENDED:
        try:
            cursor = _watch(stub, job_id, cursor, changed)
            job, down_since = stub.GetJob(GetJobRequest(job_id=job_id)), 0.0
            changed(job)
        except grpc.RpcError as error:
            down_since = down_since or time.monotonic()
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() - down_since > _PATIENCE:
                raise
            time.sleep(_LEAST_PAUSE)
    return job


def _watch(stub: OperatorServiceStub, job_id: str, cursor: str, changed: Callable[[Job], None]) -> str:
    """Reads events until the stream ends; the id of the last one."""
    shown = 0.0
    events = stub.WatchJob(WatchJobRequest(job_id=job_id, last_event_id=cursor))
    try:
        for event in events:
            cursor = event.id or cursor
            if event.type in _TERMINAL_EVENTS:
                break
            if time.monotonic() - shown > _LEAST_PAUSE:
                changed(stub.GetJob(GetJobRequest(job_id=job_id)))
                shown = time.monotonic()
    finally:
        events.cancel()
    return cursor
