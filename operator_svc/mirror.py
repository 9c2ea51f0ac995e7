"""The status mirror: `jobs.status` keeps the records of jobs whose tasks or status come from others.

The records of our own jobs are moved by the scripts that settle their tasks; the ledger knows them and ignores what
is said about them here. A direct producer's job gets a record from its first status, and follows later ones as long
as their revision rises. So entries may come twice and in any order. A task job's record expires by itself, so its
status may come when there is none: it makes none, since a job that is over must not come back.
"""

from fetchbox.jobs.jobs_pb2 import JobStatus
from kernel.config.loading import TASKS
from kernel.ids import is_key_safe
from kernel.ledger import Ledger
from kernel.ledger.record import STEP
from kernel.log.offsets import SEQ_BITS, parse_id
from kernel.log.topics import Received
from kernel.queue.announcements import Announcer
from kernel.telemetry import metrics

_EARLIER_MS = 3_600_000
"""How long before its first status a job may have logged; where its log begins is not known otherwise."""


class Mirror:
    """Applies statuses to the ledger."""

    def __init__(self, ledger: Ledger, announcer: Announcer) -> None:
        self._ledger = ledger
        self._announcer = announcer

    async def apply(self, received: Received[JobStatus]) -> None:
        """Applies one entry. One without a usable job id is refused, since ids become keys."""
        status = received.message
        if not is_key_safe(status.job_id):
            metrics.MIRRORED.labels("refused").inc()
            return
        if _is_task(status):
            metrics.MIRRORED.labels("ignored").inc()
            return
        if not status.log_offset:
            status.log_offset = max(0, parse_id(received.id)[0] - _EARLIER_MS) << SEQ_BITS
        changed = await self._ledger.mirror(status)
        if changed:  # what our workers counted may have ended it
            await self._announcer.announce_noted(status.job_id)
        metrics.MIRRORED.labels("applied" if changed else "ignored").inc()


def _is_task(status: JobStatus) -> bool:
    """Whether it is that of a task job: ours always count revisions, and have no resources."""
    ours = status.job_type in TASKS or status.job_type == STEP
    return ours and status.revision > 0 and not status.resources_total and not status.manifest_key
