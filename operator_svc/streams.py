"""ListStreams, and what it says about health."""

from collections.abc import Sequence

from fetchbox.operator.v1.job_pb2 import StreamPartition
from fetchbox.operator.v1.operator_service_pb2 import ListStreamsResponse
from kernel.log.backlog import Backlogs


async def partitions(backlogs: Backlogs) -> ListStreamsResponse:
    """Length and backlog of every partition, by stream."""
    return ListStreamsResponse(
        partitions=[
            StreamPartition(
                stream=part.topic,
                partition=part.partition,
                length=part.length,
                pending=part.pending,
                waiting=part.waiting,
                delayed=part.delayed,
                oldest_age_seconds=part.oldest_age_ms / 1000,
            )
            for part in await backlogs.read()
        ]
    )


async def problems(backlogs: Backlogs) -> Sequence[str]:
    """The topics that are not provisioned. Their consumers create what is missing, so they only degrade."""
    missing = {part.topic for part in await backlogs.read() if not part.provisioned}
    return [f"{topic} is not provisioned: run `fetchbox streams provision`" for topic in sorted(missing)]
