"""Tells `jobs.status` what an operator has done to a job, as workers do for what they have done."""

from fetchbox.jobs.jobs_pb2 import JobStatus
from kernel.ledger import Ledger, job_status
from kernel.log.topics import Topic


class Announcer:
    """Publishes the state of jobs. A repetition is harmless: readers apply only a higher revision."""

    def __init__(self, ledger: Ledger, topic: Topic[JobStatus]) -> None:
        self._ledger = ledger
        self._topic = topic

    async def announce(self, job_id: str) -> None:
        """Publishes the job's record as it is now; nothing where there is none."""
        record = await self._ledger.get(job_id) if job_id else None
        if record is not None:
            await self._topic.publish(job_status(record))
