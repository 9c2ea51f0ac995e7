"""How long one attempt may take."""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config
from kernel.config import TASKS, seconds, task
from kernel.lanes.types import Claim


class Deadlines:
    """Seconds for a claim: those of its task, where it has a deadline of its own, else the worker's."""

    def __init__(self, config: Config) -> None:
        self.default = seconds(config.worker.deadline)
        """That of the worker."""
        self._tasks = {
            name: seconds(found.deadline)
            for name in TASKS
            if (found := task(config, name)) is not None and found.HasField("deadline")
        }

    def __call__(self, claim: Claim) -> float:
        """The deadline of an attempt at this claim."""
        if not self._tasks or claim.queued is None:
            return self.default
        return self._tasks.get(claim.job_type, self.default)
