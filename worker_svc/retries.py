"""How often a task may be tried again."""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config


class Retries:
    """Job type -> retries after the first attempt: its own number, else the worker's."""

    def __init__(self, config: Config) -> None:
        self._default = config.worker.max_retries
        self._own = {
            name: job_type.max_retries
            for name, job_type in config.job_types.items()
            if job_type.HasField("max_retries")
        }

    def __call__(self, job_type: str) -> int:
        """The retries of a task of this type."""
        return self._own.get(job_type, self._default)
