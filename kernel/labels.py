"""Which names may be label values of metrics in this process: those that the configuration knows."""

from __future__ import annotations

from fetchbox.config.v1 import config_pb2
from kernel import keys
from kernel.config import TASKS
from kernel.lists.names import ListNames
from kernel.telemetry import metrics


def configure_labels(config: config_pb2.Config) -> None:
    """Job types and tasks; the priority lists, what stands around them, and the streams of work."""
    metrics.configure([*config.job_types, *TASKS], [*ListNames(config.worker).all, keys.TASKS, keys.QUEUE])
