"""Finishes what creations of task jobs left in the outbox."""

from kernel.ledger.task_queue import TaskQueue
from kernel.redis import keys
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("ingest.task_sweep")


class TaskSweep:
    """Outbox members older than the submit lease are abandoned."""

    def __init__(self, queue: TaskQueue, lease_ms: int) -> None:
        self._queue = queue
        self._lease_ms = lease_ms

    async def run(self) -> None:
        """One round."""
        swept = await self._queue.sweep(self._lease_ms)
        if swept.published or swept.dropped:
            metrics.OUTBOX_FINISHED.inc(swept.published)
            metrics.JOBS_PRODUCED.labels(keys.QUEUE).inc(swept.published)
            log.info("creations_finished", count=swept.published, dropped=swept.dropped)
