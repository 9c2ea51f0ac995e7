"""ExportJobs: the snapshots of all jobs, to be kept before they are pruned."""

from collections.abc import AsyncIterator

from fetchbox.operator.v1.job_pb2 import Job
from kernel.ledger import Ledger
from kernel.ledger.base import TERMINAL
from operator_svc import jobs


async def snapshots(ledger: Ledger, *, ended_only: bool) -> AsyncIterator[Job]:
    """Every snapshot, oldest first. The records tell which jobs have ended: the pruner's index has no task jobs."""
    async for record in ledger.all():
        if not ended_only or record.status in TERMINAL:
            yield jobs.snapshot(record)
