"""ListStreams, and what it says about health."""

from collections.abc import Sequence

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1.job_pb2 import StreamPartition
from fetchbox.operator.v1.operator_service_pb2 import ListStreamsResponse
from kernel.log import provisioning
from kernel.log.backlog import Backlogs
from kernel.redis.clients import RedisClients


async def partitions(backlogs: Backlogs) -> ListStreamsResponse:
    """Length and backlog of every partition, by stream, and of the task queue."""
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


async def problems(redis: RedisClients, config: Config, backlogs: Backlogs) -> Sequence[str]:
    """What is not provisioned as configured. Consumers create what is missing, so it only degrades."""
    found = await provisioning.check(redis, config)
    lost = {part.topic for part in await backlogs.read() if not part.provisioned}
    return found or [f"{topic} has lost a partition or its group" for topic in sorted(lost)]
