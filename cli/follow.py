"""Following one job to its end by its events, across restarts of the service that tells them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

import grpc

from cli.output import out
from fetchbox.operator.v1.job_pb2 import Job, JobEvent
from fetchbox.operator.v1.operator_service_pb2 import GetJobRequest, WatchJobRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

ENDED = frozenset({"completed", "partial", "failed", "canceled"})
_LEAST_PAUSE = 0.2
_PATIENCE = 30.0
T = TypeVar("T")
E = TypeVar("E")


def follow_events(
    read: Callable[[], T],
    watch: Callable[[str], Any],
    ended: Callable[[T], bool],
    told: Callable[[E], None],
    place: Callable[[E], str] = attrgetter("id"),
) -> T:
    """Calls `told` with each event of a job, once, and returns the job as `read` gives it at its end.

    `watch` is the call for the events after an id, `place` the id of an event. A service that goes away is
    waited for, 30 seconds long, and asked for what follows the last event; then its error is raised.
    """
    cursor, down_since = "", 0.0
    while True:
        try:
            for event in _until_left(watch(cursor)):
                cursor, down_since = place(event) or cursor, 0.0
                told(event)
            job = read()  # after the end of the stream the record says whether that is the job's end
            if ended(job):
                return job
        except grpc.RpcError as error:
            down_since = down_since or time.monotonic()
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() - down_since > _PATIENCE:
                raise
        time.sleep(_LEAST_PAUSE)


def follow(stub: OperatorServiceStub, job_id: str, changed: Callable[[Job], None]) -> Job:
    """Calls `changed` with snapshots of a fetch job, a few a second at most, and returns the last one."""
    shown = 0.0

    def read() -> Job:
        job = stub.GetJob(GetJobRequest(job_id=job_id))
        changed(job)
        return job

    def told(_event: JobEvent) -> None:
        nonlocal shown
        if time.monotonic() - shown > _LEAST_PAUSE:
            read()
            shown = time.monotonic()

    job = read()
    if job.status in ENDED:
        return job
    return follow_events(
        read,
        lambda cursor: stub.WatchJob(WatchJobRequest(job_id=job_id, last_event_id=cursor)),
        lambda now: now.status in ENDED,
        told,
    )


@contextmanager
def leaving(name: str, what: str = "job") -> Iterator[None]:
    """Tells whoever leaves with Ctrl-C that the job, or run, goes on, and how to come back to it or end it."""
    try:
        yield
    except KeyboardInterrupt:
        group = f"fetchbox {'flows' if what == 'run' else 'jobs'}"
        out.note(f"\nThe {what} goes on. `{group} watch {name}` follows it, `{group} cancel {name}` ends it.")
        raise


def _until_left(events: Any) -> Iterator[Any]:
    """The events of a call, which is ended when they are no longer wanted."""
    try:
        yield from events
    finally:
        events.cancel()
