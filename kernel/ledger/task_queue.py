"""The queue of task jobs (`jobs:stream`, seed 004), as those see it who put jobs on it.

One job's story: it is admitted where the backlog has room, and noted in the outbox; its record and first event are
written; then it goes from the outbox to the queue, in one step. Whoever dies on the way leaves it in the outbox, and
`sweep` puts it on the queue if it has a record, for then somebody may have been told of it, and drops it otherwise.
Our workers delete an entry when they acknowledge it. What workers of others acknowledged is deleted by `Leftovers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1 import errors_pb2
from kernel import keys
from kernel.errors import FetchboxError
from kernel.ledger.admission import Admission, FullError, Keep, NewTask
from kernel.ledger.leftovers import Leftovers
from kernel.redis import RedisClients

__all__ = ["Keep", "NewTask", "Swept", "TaskQueue"]

_SWEEP = 100
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did."""

    published: int
    dropped: int


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


class TaskQueue:
    """Makes task jobs.

    A full backlog is looked through for `leftovers`, where it has some, before it refuses; `reached` is called with the
    name of each step of a creation that is done. Jobs `of_steps`, of runs that were accepted, need no free memory.
    """

    name = "task-queue"

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        leftovers: Leftovers | None = None,
        reached: Callable[[str], None] = _nothing,
        *,
        of_steps: bool = False,
    ) -> None:
        self._clients = clients
        self._admission = Admission(clients, config, reached, of_steps=of_steps)
        self._leftovers = leftovers

    async def start(self) -> None:
        """Begins to create jobs."""
        await self._admission.start()

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: those whose jobs these are wait for them."""

    async def stop(self) -> None:
        """Ends at once. Safe twice."""
        if self._leftovers is not None:
            await self._leftovers.stop()
        await self._admission.stop()

    async def create(self, new: NewTask, keep: Keep | None = None) -> int:
        """Admits a job, writes its record and first event, and queues it; when, in ms by the clock of Redis.

        `RATE_LIMITED` where the backlog is full: nothing of the job is kept then. `UNAVAILABLE` leaves it open whether
        there is a job. A repetition for a job that is under way finishes it. `keep`, where there is one, is kept as
        soon as the job is sure to be queued.
        """
        try:
            return await self._admission.create(new, keep)
        except FullError as full:
            if self._leftovers is None or not await self._leftovers.made_room():
                raise _refused(new, full) from full
        try:
            return await self._admission.create(new, keep)
        except FullError as full:
            raise _refused(new, full) from full

    async def finish(self, new: NewTask, created_ms: int, keep: Keep | None = None) -> int:
        """Does what may be missing of a job whose record exists since `created_ms`, which is the answer."""
        return await self._admission.finish(new, created_ms, keep)

    async def sweep(self, older_than_ms: int) -> Swept:
        """Ends what was begun at least so long ago by creators that are gone, the oldest hundred of it."""
        until = await self._clients.now_ms() - older_than_ms
        members = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.outbox(keys.QUEUE), "-inf", until, "LIMIT", 0, _SWEEP
        )
        published = 0
        for member in members:
            published += await self._finished(member.decode())
        return Swept(published, len(members) - published)

    async def _finished(self, member: str) -> bool:
        """Queues the job of an outbox member; drops a member without a record, and is False then."""
        job_id = member.partition("/")[2]
        task, payload, ttl_s, created, flow = await self._clients.commands.execute_command(
            "HMGET", keys.job(job_id), "task", "payload", "ttl_s", "created_ts", "flow"
        )
        if created is None:
            await self._clients.commands.execute_command("ZREM", keys.outbox(keys.QUEUE), member)
            return False
        new = NewTask(job_id, task.decode(), payload, int(ttl_s), flow=flow.decode() if flow else "")
        await self.finish(new, int(created))
        return True


def _refused(new: NewTask, full: FullError) -> FetchboxError:
    """The refusal. If the oldest entry has waited for a time t, then of n entries one leaves about every t / n."""
    wait = min(max(1.0, full.oldest_ms / 1000 / full.count), _LONGEST_WAIT)
    what, limit = (
        (f"{new.task} jobs", f"tasks.{new.task}.max_backlog") if full.of_task else ("jobs", "tasks.max_backlog")
    )
    return FetchboxError(
        errors_pb2.REASON_RATE_LIMITED,
        f"{full.count} {what} wait or run, and {limit} allows no more; nothing was kept, so come again later",
        retry_after=wait,
    )
