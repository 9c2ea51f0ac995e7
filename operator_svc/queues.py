"""ListQueues, and what the priority lists of file jobs say about health."""

from collections.abc import Sequence

from fetchbox.operator.v1.files_pb2 import FileQueue, FileWorker
from fetchbox.operator.v1.operator_service_pb2 import ListQueuesResponse
from kernel.breakers import Breakers, names
from operator_svc.file_queues import ListViews


async def queues(views: ListViews, breakers: Breakers) -> ListQueuesResponse:
    """The queues, the highest priority first, and the workers that hold file jobs or have a heartbeat."""
    view = await views.read()
    states = await breakers.states([names.of_queue(one.queue) for one in view.queues])
    return ListQueuesResponse(
        queues=[
            FileQueue(
                priority=one.priority,
                queue=one.queue,
                length=one.length,
                oldest_age_seconds=one.oldest_age_ms / 1000,
                breaker=breaker.state,
            )
            for one, breaker in zip(view.queues, states, strict=True)
        ],
        workers=[
            FileWorker(
                worker_id=one.worker_id,
                alive=one.alive,
                processing=one.processing,
                last_seen_seconds=one.last_seen_ms / 1000,
            )
            for one in view.workers
        ],
        delayed=view.delayed,
        suspects=view.suspects,
        completed=view.completed,
        dead_letters=view.dead_letters,
    )


async def problems(views: ListViews) -> Sequence[str]:
    """Keys that are no lists. File jobs wait meanwhile and nothing of them is lost, so it only degrades."""
    view = await views.read()
    return [f"the Redis key {name} holds a value of another kind" for name in view.broken]


async def idle(views: ListViews) -> Sequence[str]:
    """Whether file jobs wait while nobody works on them: it only degrades, since nothing is lost."""
    view = await views.read()
    if not view.waiting or view.attended:
        return []
    return [f"{view.waiting} file jobs wait and no worker is alive: start one with `fetchbox serve --role=worker`"]
