"""How often work may be tried again, and after how long."""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Backoff, Config
from kernel.config.loading import TASKS, task
from kernel.durations import seconds
from kernel.queue.work.retry import RetryRule
from kernel.queue.work.types import Claim


class Retries:
    """The rule for a claim: that of its job type or task, where they have one of their own, else the worker's."""

    def __init__(self, config: Config) -> None:
        worker = config.worker
        self._default = _rule(worker.max_retries, worker.backoff, worker.backoff)
        self._job_types = {
            name: _rule(job_type.max_retries, worker.backoff, worker.backoff)
            for name, job_type in config.job_types.items()
            if job_type.HasField("max_retries")
        }
        self._tasks = {
            name: _rule(
                found.max_retries if found.HasField("max_retries") else worker.max_retries,
                found.backoff,
                worker.backoff,
            )
            for name in TASKS
            if (found := task(config, name)) is not None
        }

    def __call__(self, claim: Claim) -> RetryRule:
        """The rule for a claim."""
        own = self._job_types if claim.queued is None else self._tasks
        return own.get(claim.job_type, self._default)


def _rule(max_retries: int, own: Backoff, default: Backoff) -> RetryRule:
    base = own.base if own.HasField("base") else default.base
    longest = own.max if own.HasField("max") else default.max
    return RetryRule(max_retries, seconds(base), seconds(longest))
