"""The metrics of jobs for one queue, of whatever kind: its labels are resolved once, and not for every job."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import Counter

from kernel.telemetry import metrics


class Tally:
    """Counts what became of the jobs of one queue."""

    def __init__(self, queue: str) -> None:
        label = metrics.queue(queue)
        self.consumed = metrics.JOBS_CONSUMED.labels(label)
        self._ended = {
            "completed": metrics.JOBS_COMPLETED.labels(label),
            "retrying": metrics.JOBS_RETRIED.labels(label),
            "failed": metrics.JOBS_DEAD.labels(label),
            "deferred": metrics.JOBS_DEFERRED.labels(label),
        }
        self._label = label

    def ended(self, outcome: str, count: int = 1) -> None:
        """Counts what was settled, by the outcome that its worker is told."""
        counter = self._ended.get(outcome)
        if counter is not None:
            counter.inc(count)

    def failed(self, code: str) -> None:
        """Counts a failed attempt by the kind of its failure code."""
        _failed(self._label, metrics.reason(code)).inc()


@lru_cache(512)
def _failed(label: str, reason: str) -> Counter:
    child: Counter = metrics.JOBS_FAILED.labels(label, reason)
    return child
