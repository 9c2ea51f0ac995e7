"""Tells `jobs.status` what clients, operators and workers of others have done to a job, as our workers tell it."""

from collections.abc import Sequence

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
        if job_id:
            await self.announce_all([job_id])

    async def announce_all(self, job_ids: Sequence[str]) -> None:
        """Publishes the records of jobs as they are now; those that are gone are left out."""
        records = await self._ledger.get_many(job_ids)
        await self._topic.publish_many([job_status(record) for record in records if record is not None])
