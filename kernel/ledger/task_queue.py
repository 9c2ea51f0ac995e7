"""The queue of task jobs (`jobs:stream`), as those see it who put jobs on it.

One job's story: it is admitted where the backlog has room, and noted in the outbox. Then it is made: record, first
event, answer under the idempotency key and entry on the queue, in one step with which the note goes. Whoever dies in
between leaves the note, and `sweep` drops it. An operator's replay leaves a note as well while the job that it has
opened again has no entry; such a job is queued by `sweep`. Where an entry is lost later, `Audit` finds that. Our
workers delete an entry when they acknowledge it. What workers of others acknowledged is deleted by `Leftovers`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError
from kernel.ledger.admission import FullError, Keep, NewTask, TaskAdmission, Wanted
from kernel.ledger.leftovers import Leftovers
from kernel.ledger.recalls import Recalls
from kernel.redis import keys
from kernel.redis.clients import RedisClients, Refused
from kernel.telemetry.logs import get_logger

__all__ = ["Keep", "NewTask", "Swept", "TaskQueue", "Wanted"]

_log = get_logger(__name__)
_SWEEP = 100
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did."""

    published: int
    """Jobs that were put on the queue."""
    dropped: int
    """Notes of creations that made nothing."""


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
        self._admission = TaskAdmission(clients, config, reached, of_steps=of_steps)
        self._recalls = Recalls(clients, config)
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
        there is a job. A repetition for a job that is under way finishes it. `keep`, where there is one, is kept in the
        step that makes the job.
        """
        (made,) = await self.create_many([(new, keep)])
        if isinstance(made, Exception):
            raise made
        return made

    async def create_many(self, wanted: Sequence[Wanted], *, whole: bool = False) -> list[int | Exception]:
        """Each job as `create` would; when it was created, or the error. As a `whole`, all are admitted or none is."""
        made = await _ended(self._admission.begin(wanted, whole=whole))
        full = [place for place, outcome in enumerate(made) if isinstance(outcome, FullError)]
        if full and self._leftovers is not None and await self._leftovers.made_room():
            again = await _ended(self._admission.begin([wanted[place] for place in full], whole=whole))
            for place, outcome in zip(full, again, strict=True):
                made[place] = outcome
        for place, outcome in enumerate(made):
            if isinstance(outcome, FullError):
                made[place] = _refused(wanted[outcome.place if whole else place][0], outcome)
        return made

    async def finish(self, new: NewTask, created_ms: int, keep: Keep | None = None) -> int:
        """Does what may be missing of a job whose record exists since `created_ms`, which is the answer."""
        return await self._admission.finish(new, created_ms, keep)

    async def sweep(self, older_than_ms: int) -> Swept:
        """Ends what was begun at least so long ago by creators that are gone, the oldest hundred of it.

        What cannot be ended now is put behind the others, so that it does not stand in their way.
        """
        now = await self._clients.now_ms()
        outbox = keys.outbox(keys.QUEUE)
        members = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", outbox, "-inf", now - older_than_ms, "LIMIT", 0, _SWEEP
        )
        counts: Counter[str] = Counter()
        for member in members:
            task, _, job_id = member.decode(errors="replace").partition("/")
            try:
                counts[await self._recalls.swept(task, job_id)] += 1
            except Refused as error:  # a foreign key where the record should be
                _log.warn("creation_unreadable", job_id=job_id, error=error)
                await self._clients.commands.execute_command("ZADD", outbox, "XX", now, member)
        return Swept(counts["queued"], counts["dropped"])


async def _ended(futures: Sequence[asyncio.Future[int]]) -> list[int | Exception]:
    """What each came to. They end in the order of their beginning, or nearly so."""
    found: list[int | Exception] = []
    for future in futures:
        try:
            found.append(await future)
        except Exception as error:  # noqa: BLE001 - each has an outcome of its own
            found.append(error)
    return found


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
