"""The expirer: task jobs leave the listings soon after their records have expired.

Redis removes the records by itself; this duty takes their names out of the indexes, batch by batch until nothing is
due. A pass is bounded, so that a day's backlog is worked off over some passes and each of them tells what it did.
"""

from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from operator_svc.expiry import Expiry

_log = get_logger("operator.expirer")

BATCH = 100
"""Jobs that are looked at together: few enough that the event loop is not held up for long."""
MAX_BATCHES = 1000
"""Up to 100,000 jobs a pass."""


class Expirer:
    """One pass after another; each is harmless beside that of another process."""

    def __init__(self, expiry: Expiry) -> None:
        self._expiry = expiry

    async def run(self) -> int:
        """One pass; how many jobs were forgotten."""
        forgotten = 0
        for _ in range(MAX_BATCHES):
            looked, gone = await self._expiry.sweep(BATCH)
            forgotten += gone
            if looked < BATCH:
                break
        if forgotten:
            metrics.JOBS_EXPIRED.inc(forgotten)
            _log.info("jobs_expired", count=forgotten)
        return forgotten
