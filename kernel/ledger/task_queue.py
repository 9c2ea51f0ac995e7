"""The queue of task jobs (`jobs:stream`, seed 004), as those see it who put jobs on it and keep it clean.

One job's story: it is admitted where the backlog has room, and noted in the outbox; its record and first event are
written; then it goes from the outbox to the queue, in one step. Whoever dies on the way leaves it in the outbox, and
`sweep` puts it on the queue if it has a record, for then somebody may have been told of it, and drops it otherwise.
Our workers delete an entry when they acknowledge it. What workers of others acknowledged is deleted by `tidy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1 import errors_pb2
from kernel import keys, scripts
from kernel.clock import Clock, SystemClock
from kernel.config import TASKS
from kernel.errors import FetchboxError
from kernel.ledger.admission import Admission, FullError, Keep, NewTask
from kernel.ledger.base import TERMINAL
from kernel.redis import RedisClients
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

__all__ = ["Keep", "NewTask", "Swept", "TaskQueue"]

_log = get_logger(__name__)
_STEP = 100
"""Entries that one script looks at; each of them may hold 200 KB."""
_SWEEP = 100
_PAUSE = 1.0
"""The least time between two refusals that look for entries to delete, in seconds."""
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did."""

    published: int
    dropped: int


@dataclass(frozen=True, slots=True)
class _Left:
    """An entry that was read and is with nobody."""

    id: str
    job_id: str
    counted: str
    """The task under which it is counted as open; empty for another's entry."""


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


class TaskQueue:
    """Makes task jobs, and keeps the queue free of what is settled.

    `announce` is told of jobs whose entries are about to be deleted by `tidy`, so that their status is published;
    `reached` is called with the name of each step of a creation that is done.
    """

    name = "task-queue"

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        clock: Clock | None = None,
        announce: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        reached: Callable[[str], None] = _nothing,
    ) -> None:
        self._clients = clients
        self._admission = Admission(clients, config, reached)
        self._announce = announce
        self._clock = clock or SystemClock()
        self._tidying: asyncio.Task[list[str]] | None = None
        self._tidied_at = -_PAUSE

    async def start(self) -> None:
        """Begins to create jobs."""
        await self._admission.start()

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: those whose jobs these are wait for them."""

    async def stop(self) -> None:
        """Ends at once. Safe twice."""
        await ended(self._tidying)
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
            if not await self._tidied():
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

    async def tidy(self) -> list[str]:
        """Deletes entries that were read and are with nobody, since a worker that deletes nothing acknowledged them.

        The ids of their jobs. An entry whose job has not ended was never acknowledged by whoever keeps the contract
        (seed 004, Consumer group usage): its consumer was deleted, and it is given back to be run.
        """
        after, tidied = "-", list[str]()
        while after:
            following, *found = await self._clients.call(
                scripts.TASK_TIDY, [keys.QUEUE], [keys.GROUP_WORKERS, after, _STEP]
            )
            tidied += await self._settled(
                [_Left(*map(bytes.decode, found[i : i + 3])) for i in range(0, len(found), 3)]
            )
            after = following.decode()
        return tidied

    async def length(self) -> int:
        """How many jobs wait or run: what `tasks.max_backlog` bounds."""
        entries, noted = await asyncio.gather(
            self._clients.commands.execute_command("XLEN", keys.QUEUE),
            self._clients.commands.execute_command("ZCARD", keys.outbox(keys.QUEUE)),
        )
        return int(entries) + int(noted)

    async def open(self) -> dict[str, int]:
        """How many entries of ours wait or run, by task; tasks without any are left out."""
        found = await self._clients.commands.execute_command("HMGET", keys.open_tasks(), *TASKS)
        return {task: int(count) for task, count in zip(TASKS, found, strict=True) if count is not None}

    async def outbox_length(self) -> int:
        """How many jobs are admitted but not yet queued."""
        return int(await self._clients.commands.execute_command("ZCARD", keys.outbox(keys.QUEUE)))

    async def _finished(self, member: str) -> bool:
        """Queues the job of an outbox member; drops a member without a record, and is False then."""
        job_id = member.partition("/")[2]
        task, payload, ttl_s, created = await self._clients.commands.execute_command(
            "HMGET", keys.job(job_id), "task", "payload", "ttl_s", "created_ts"
        )
        if created is None:
            await self._clients.commands.execute_command("ZREM", keys.outbox(keys.QUEUE), member)
            return False
        await self.finish(NewTask(job_id, task.decode(), payload, int(ttl_s)), int(created))
        return True

    async def _settled(self, left: Sequence[_Left]) -> list[str]:
        """Deletes the entries of ended jobs, whose ids it returns, and gives the others back."""
        over: list[_Left] = []
        lost: list[_Left] = []
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for entry in left:
                batch.hget(keys.job(entry.job_id), "status")
            for entry, status in zip(left, await batch.execute(), strict=True):
                (over if status is None or status.decode() in TERMINAL else lost).append(entry)
        if lost:
            _log.warn("queue_entries_returned", count=len(lost))
            await self._clients.call(
                scripts.TASK_RETURN, [keys.QUEUE], [keys.GROUP_WORKERS, *(entry.id for entry in lost)]
            )
        job_ids = [entry.job_id for entry in over if entry.job_id]
        if over:
            if self._announce is not None:
                await self._announce(job_ids)
            await self._clients.call(
                scripts.TASK_ACKNOWLEDGE,
                [keys.QUEUE, keys.redo(keys.QUEUE), keys.delayed(keys.QUEUE), keys.open_tasks()],
                [keys.GROUP_WORKERS, *(part for entry in over for part in (entry.id, entry.counted))],
            )
        return job_ids

    async def _tidied(self) -> bool:
        """Whether a look at the queue, at most one a second, has made room."""
        if self._tidying is None:
            now = self._clock.monotonic()
            if now - self._tidied_at < _PAUSE:
                return False
            self._tidied_at = now
            self._tidying = asyncio.create_task(self.tidy(), name="task-queue-tidy")
        tidying = self._tidying
        try:
            return bool(await asyncio.shield(tidying))
        except FetchboxError:
            return False  # then the refusal stands
        finally:
            if tidying.done() and self._tidying is tidying:
                self._tidying = None


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
