"""Which kind a job is of: operators see every job, the client of a task sees its own."""

from cli import channels
from cli.problems import CommandError
from cli.settings import Settings
from fetchbox.operator.v1 import job_pb2 as manifests
from fetchbox.operator.v1.operator_service_pb2 import GetJobRequest
from fetchbox.task.v1 import job_pb2 as tasks
from fetchbox.task.v1 import task_service_pb2

FETCH = "fetch"
"""The `task` of a fetch job."""
_NOT_THERE = frozenset({"FORBIDDEN", "UNAVAILABLE"})


def find(options: Settings, job_id: str) -> manifests.Job | tasks.Job:
    """A fetch job as operators see it, or a task job with its result.

    A tenant, whose token or network does not reach the operator service, finds tasks all the same.
    """
    refusal: CommandError | None = None
    try:
        with channels.operator(options) as operator:
            job = operator.GetJob(GetJobRequest(job_id=job_id))
        if job.task == FETCH:
            return job
    except CommandError as error:
        if error.reason not in _NOT_THERE:
            raise
        refusal = error
    with channels.tasks(options) as stub:
        found = stub.GetJob(task_service_pb2.GetJobRequest(job_id=job_id))
    if refusal is not None and found.task == FETCH:
        raise refusal
    return found
