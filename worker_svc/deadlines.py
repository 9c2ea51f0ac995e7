"""How long one attempt may take."""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import TASKS, task
from kernel.durations import seconds
from kernel.ledger.record import STEP
from kernel.queue.work.types import Claim
from worker_svc.steps.registry import StepHandlers


class Deadlines:
    """Seconds for a claim: those of its task, or step, where it has a deadline of its own, else the worker's."""

    def __init__(self, config: Config, steps: StepHandlers) -> None:
        self._steps = steps
        self.default = seconds(config.worker.deadline)
        """That of the worker."""
        self._tasks = {
            name: seconds(found.deadline)
            for name in TASKS
            if (found := task(config, name)) is not None and found.HasField("deadline")
        }

    def __call__(self, claim: Claim) -> float:
        """The deadline of an attempt at this claim."""
        if claim.queued is None:
            return self.default
        if claim.job_type == STEP:
            return self._steps.deadline(claim) or self.default
        return self._tasks.get(claim.job_type, self.default)
