"""ListJobs: pages of snapshots, newest first. What is pruned between the index and the record is left out."""

from fetchbox.operator.v1.operator_service_pb2 import JobCounts, ListJobsRequest, ListJobsResponse
from kernel import pages
from kernel.ledger import Ledger, operator_status
from operator_svc import jobs

_LEDGER_WORDS = {"in_progress": "running", "completed": "done", "failed": "error"}


async def page(ledger: Ledger, request: ListJobsRequest) -> ListJobsResponse:
    """One page of the jobs that match, and how many there are by state. `INVALID_PAYLOAD` for a foreign token."""
    filters = (request.status, request.job_type, request.tenant, request.task)
    before = pages.jobs_cursor(request.page_token, filters)
    records, cursor = await ledger.page(
        pages.size(request.page_size),
        before,
        status=_LEDGER_WORDS.get(request.status, request.status),
        job_type=request.job_type,
        tenant=request.tenant,
        task=request.task,
    )
    counts = await ledger.counts_by_state(request.tenant)
    return ListJobsResponse(
        jobs=[jobs.snapshot(record) for record in records],
        next_page_token=pages.token(cursor, filters),
        counts=None if counts is None else JobCounts(**{operator_status(state): n for state, n in counts.items()}),
    )
