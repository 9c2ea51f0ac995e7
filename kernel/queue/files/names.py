"""The Redis names of the priority lists, as the configuration has them."""

from __future__ import annotations

from fetchbox.config.v1 import config_pb2
from kernel.redis import keys


class ListNames:
    """The queues in their order, and every list around them."""

    def __init__(self, worker: config_pb2.Worker) -> None:
        self.priorities = tuple(worker.priorities)
        """The highest first."""
        self.queues = tuple(worker.queues[priority] for priority in worker.priorities)
        """The list of each priority."""
        self.completed = worker.completed_list
        self.dead_letters = worker.dead_letter_list
        self._processing = worker.processing_list_pattern
        self._heartbeat = worker.heartbeat_key_pattern
        self._by_priority = dict(zip(self.priorities, self.queues, strict=True))

    @property
    def all(self) -> tuple[str, ...]:
        """The queues, the list of completed jobs and the dead letters."""
        return (*self.queues, self.completed, self.dead_letters)

    @property
    def default(self) -> str:
        """The queue of a job that names none: the lowest."""
        return self.queues[-1]

    def queue_of(self, origin_queue: str, priority: str) -> str:
        """Where a job belongs: `origin_queue` where it is one of ours, else by priority, else the default queue."""
        if origin_queue in self.queues:
            return origin_queue
        return self._by_priority.get(priority, self.default)

    def processing(self, worker: str) -> str:
        """The list of what a worker holds."""
        return keys.of_worker(self._processing, worker)

    def heartbeat(self, worker: str) -> str:
        """The heartbeat key of a worker."""
        return keys.of_worker(self._heartbeat, worker)

    @property
    def processing_glob(self) -> str:
        """What every processing list matches, for SCAN."""
        escaped = "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in self._processing)
        return keys.of_worker(escaped, "*")

    def worker_of(self, processing: str) -> str:
        """The worker whose processing list this is."""
        before, _, after = self._processing.partition("%s")
        return processing[len(before) : len(processing) - len(after)]
