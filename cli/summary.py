"""How a job ended, at a glance."""

from collections.abc import Sequence

from cli.output import out
from fetchbox.operator.v1.job_pb2 import DeadLetter, Job
from fetchbox.operator.v1.operator_service_pb2 import ListDeadLettersRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

_MOST_FAILURES = 20


def failures_of(stub: OperatorServiceStub, job: Job) -> list[DeadLetter]:
    """The newest dead letters of a job that has some; the whole list is `fetchbox dlq list --job`."""
    if not job.resource_failed:
        return []
    request = ListDeadLettersRequest(job_id=job.job_id, page_size=_MOST_FAILURES)
    return list(stub.ListDeadLetters(request).dead_letters)


def job_facts(job: Job) -> dict[str, object]:
    """What is worth knowing of a job, by name."""
    took = job.updated_at.ToMilliseconds() - job.created_at.ToMilliseconds()
    return {
        "job": job.job_id,
        "status": job.status,
        "type": job.job_type,
        "tenant": job.tenant,
        "flow": job.flow,
        "stored": f"{job.resource_completed} of {job.resource_total}",
        "failed": job.resource_failed or "",
        "took": f"{took / 1000:.1f} s",
        "manifest": job.manifest_key,
        "results": job.results_key,
        "last error": f"{job.last_error.code} {job.last_error.message}".strip(),
        "trace": job.trace_id,
    }


def show_summary(job: Job, failures: Sequence[DeadLetter]) -> None:
    """The job and what failed in it."""
    out.facts(job_facts(job))
    if failures:
        rows = [
            (letter.resource_id, letter.failure_code, letter.attempts, letter.failure_message) for letter in failures
        ]
        out.table(("resource", "code", "attempts", "message"), rows, title="failed")
        out.note(f"`fetchbox dlq replay --job {job.job_id}` tries them again.")
