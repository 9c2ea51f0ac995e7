"""The pruner: records go 30 days after the end of their job, or earlier when all of them are over 5 GB.

A job that has not ended is never removed; the deciding look at its status is inside the script that removes it. Each
pass does a bounded amount of work, so a backlog is worked off over several passes and nobody waits for a long one.
The size of all records is estimated from a random sample, and is exact where the sample holds them all. Both limits are
about fetch jobs: a task job's record expires by itself (`expirer.py`). Neither removes a job whose last status
the exporter may not have written into the lake yet, until that has been silent for `exporter.hold`.
"""

from collections.abc import Sequence

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import millis
from kernel.ledger import Ledger
from kernel.queue.announcements import Announcer
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from operator_svc.job_retention import ExportedJobs, JobRetention

_log = get_logger("operator.pruner")

MAX_REMOVED = 500
"""The most records that one pass removes for each reason."""
MAX_CLOSED = 100
SAMPLE = 200


class Pruner:
    """One pass after another; each is harmless beside that of another process."""

    def __init__(self, ledger: Ledger, announcer: Announcer, clients: RedisClients, config: Config) -> None:
        self._ledger = ledger
        self._announcer = announcer
        self._clients = clients
        self._index = JobRetention(clients, config)
        self._exported = ExportedJobs(clients, config)
        self._retention_ms = millis(config.ledger.retention)
        self._max_bytes = config.ledger.max_bytes
        self._idle_ms = millis(config.ledger.idle_timeout)

    async def run(self) -> None:
        """One pass: closes idle jobs, removes old records, then those beyond the size cap."""
        await self.close_idle()
        await self.remove_old()
        await self.remove_excess()
        jobs, _ = await self._ledger.counts()
        metrics.LEDGER_JOBS.set(jobs)

    async def close_idle(self) -> int:
        """Ends jobs of direct producers that gave no total and have had no news for the idle timeout."""
        closed = 0
        for job_id in await self._ledger.idle(self._idle_ms, MAX_CLOSED):
            if await self._ledger.close(job_id, self._idle_ms):
                closed += 1
                await self._announcer.announce(job_id)
        return closed

    async def remove_old(self) -> int:
        """Removes records of jobs that ended before the retention time."""
        until = await self._clients.now_ms() - self._retention_ms
        ended = await self._exported.of(await self._ledger.ended_before(until, MAX_REMOVED))
        return self._told(await self._remove(ended, until), "retention")

    async def remove_excess(self) -> int:
        """Removes the records that ended first, until the rest is within the size cap."""
        excess = await self.size() - self._max_bytes
        removed = 0
        now = await self._clients.now_ms()
        for job_id in await self._exported.of(await self._index.oldest_ended(MAX_REMOVED)) if excess > 0 else ():
            if excess <= 0:
                break
            size = await self._ledger.size(job_id)
            if await self._remove([job_id], now + 1):
                excess -= size
                removed += 1
        return self._told(removed, "size")

    async def size(self) -> int:
        """The bytes of all ended records, estimated from a sample."""
        _, ended = await self._ledger.counts()
        sample = await self._index.sample_ended(SAMPLE)
        if not sample:
            return 0
        return sum([await self._ledger.size(job_id) for job_id in sample]) * ended // len(sample)

    async def _remove(self, job_ids: Sequence[str], ended_before: int) -> int:
        removed = 0
        for job_id in job_ids:
            if await self._ledger.delete(job_id, ended_before):
                removed += 1
            else:
                await self._index.look_again(job_id)
        return removed

    def _told(self, removed: int, reason: str) -> int:
        if removed:
            metrics.JOBS_PRUNED.inc(removed)
            _log.info("jobs_pruned", count=removed, reason=reason)
        return removed
