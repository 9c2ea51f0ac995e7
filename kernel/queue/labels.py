"""Which names may be label values of metrics in this process: those that the configuration knows."""

from __future__ import annotations

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.config.loading import TASKS
from kernel.errors import failure_name
from kernel.ledger.record import STEP
from kernel.queue.files.names import ListNames
from kernel.redis import keys
from kernel.telemetry import metrics


def configure_labels(config: config_pb2.Config) -> None:
    """Job types and tasks; the priority lists, what stands around them, and the streams of work."""
    names = ListNames(config.worker)
    metrics.configure([*config.job_types, *TASKS, STEP], [*names.all, keys.TASKS, keys.QUEUE], config.flows)
    _begin_at_zero([*names.queues, keys.TASKS, keys.QUEUE])


def _begin_at_zero(queues: list[str]) -> None:
    """Counters whose first event is an alert are shown before it: a series that begins at 1 has not risen."""
    for queue in queues:
        metrics.JOBS_DEAD.labels(queue)
        metrics.REAPED.labels(queue)
        metrics.RECOVERY_SECONDS.labels(queue)
        metrics.UNDECODABLE.labels(queue)
    for topic in keys.TOPICS:
        metrics.UNDECODABLE.labels(topic)
        metrics.OFFSET_EPOCHS.labels(topic)
    for topic in (*keys.TOPICS, "flows"):
        metrics.EXPORT_QUARANTINED.labels(topic)
        metrics.EXPORT_MISSING.labels(topic)
        for reason in ("hole", "rewritten"):
            metrics.EXPORT_HOLES.labels(topic, reason)
    metrics.DEAD_LETTERS.labels(failure_name(codes.FAILURE_CODE_SYSTEM_CRASH_LOOP))
    metrics.FINALIZERS.labels("broken")
