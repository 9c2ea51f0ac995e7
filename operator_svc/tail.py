"""The log tailer: reads `jobs.logs` in the group `operators` and counts its lines by level.

It keeps the group's position, so that its lag tells whether logs come faster than they are looked at; a job's own log
is replayed from the stream with a cursor (`logs.py`), independently of this position.
"""

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel.log.topics import Received
from kernel.telemetry import metrics
from operator_svc.logs import level


async def count(received: Received[JobLog]) -> None:
    """Counts one line."""
    metrics.JOB_LOG_LINES.labels(level(received.message.level)).inc()
