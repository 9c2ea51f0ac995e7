"""The coalescer of task jobs: creations gather while a reply is awaited, and leave together as soon as it came.

Each cycle is one pipeline of two generations: the jobs that were admitted in the cycle before are made, and those that
have gathered since are admitted. A job is made in one step: whoever sees its record finds its entry on the queue, and
its answer under the idempotency key. A crash before that leaves a note in the outbox, which the sweep drops. There is
no timer: a single creation takes two round trips, and so do five hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fetchbox.config.v1 import config_pb2
from kernel.config.loading import task
from kernel.durations import seconds
from kernel.errors import unavailable
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command, PipeLost
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

ENQUEUED_BY = "gateway.enqueue"
"""The step of a job's first event."""
QUEUE_KEYS = [keys.QUEUE, keys.outbox(keys.QUEUE), keys.open_tasks(), keys.noted_tasks()]
_MOST = 512
_MOST_BYTES = 4 << 20
"""Jobs, and bytes of their payloads, in one generation, so that no script holds Redis for long."""
_SCRIPTS = (
    scripts.TASK_ADMIT,
    scripts.STEP_ADMIT,
    scripts.TASK_ACCEPT,
)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task job that is to be."""

    job_id: str
    task: str
    payload: bytes
    """JSON, kept byte for byte."""
    ttl_s: int
    tenant: str = ""
    trace_id: str = ""
    traceparent: str = ""
    flow: str = ""
    """The attempt at a step of a flow that it is, as `QueuedTask.flow`; empty for none."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The answer that is kept under an idempotency key in the step that makes the job."""

    name: str
    """The Redis key that stands for the idempotency key."""
    answer: Callable[[int], bytes]
    """The answer for a job that was created at a time in ms."""


Wanted = tuple[NewTask, Keep | None]
"""A job that is to be, and what is kept under its idempotency key."""


@dataclass
class FullError(Exception):
    """There is no room: `count` jobs wait or run, of the task alone where `of_task`; the oldest for `oldest_ms`.

    `place` is that of the job without room among those that are made all or none.
    """

    count: int
    of_task: bool
    oldest_ms: int
    place: int = 0


@dataclass(slots=True, eq=False)
class _Item:
    """One creation on its way."""

    new: NewTask
    keep: Keep | None
    future: asyncio.Future[int]
    admitted_ms: int = 0
    tries: int = 0
    """How often it was lost with a connection since its last step."""

    def done(self, created_ms: int) -> None:
        if not self.future.done():
            self.future.set_result(created_ms)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class TaskAdmission:
    """Creates task jobs, a pipeline after the other."""

    def __init__(
        self, clients: RedisClients, config: config_pb2.Config, reached: Callable[[str], None], *, of_steps: bool
    ) -> None:
        """`of_steps`: the jobs are those of runs, which were accepted: they are made when memory is short, too."""
        self._config = config
        self._of_steps = of_steps
        self._admit = scripts.STEP_ADMIT if of_steps else scripts.TASK_ADMIT
        self._tries = config.redis.max_retries
        self._link = Link(clients, "fetchbox-tasks", _SCRIPTS, seconds(config.redis.read_timeout))
        self._reached = reached
        self._gathered: list[_Item] = []
        self._wholes: list[list[_Item]] = []
        """Those that are admitted together or not at all."""
        self._admitted: list[_Item] = []
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to work."""
        self._loop = asyncio.create_task(self._run(), name="task-admission")

    async def stop(self) -> None:
        """Ends at once; who still waits is told that the outcome is open. Safe twice."""
        loop, self._loop = self._loop, None
        await ended(loop)
        self._link.close()
        for item in chain(self._gathered, self._admitted, *self._wholes):
            item.fail(unavailable("The service stops."))
        self._gathered, self._admitted, self._wholes = [], [], []

    async def create(self, new: NewTask, keep: Keep | None) -> int:
        """Creates a job; when it was created, in ms by the clock of Redis.

        `FullError` where there is no room; `UNAVAILABLE` leaves the outcome open.
        """
        return await self.begin([(new, keep)])[0]

    def begin(self, wanted: Iterable[Wanted], *, whole: bool = False) -> list[asyncio.Future[int]]:
        """Begins to create jobs, each as `create` does; as a `whole`, all are admitted or each has the `FullError`."""
        loop = asyncio.get_running_loop()
        items = [_Item(new, keep, loop.create_future()) for new, keep in wanted]
        if whole:
            self._wholes.append(items)
        else:
            self._gathered += items
        self._wake.set()
        return [item.future for item in items]

    async def finish(self, new: NewTask, created_ms: int, keep: Keep | None) -> int:
        """Does what may be missing of a job whose record exists, since `created_ms`, which is the answer."""
        item = _Item(new, keep, asyncio.get_running_loop().create_future(), created_ms)
        self._admitted.append(item)
        self._wake.set()
        return await item.future

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._gathered or self._admitted or self._wholes:
                await self._cycle()

    async def _cycle(self) -> None:
        following, self._admitted = _split(self._admitted)
        # After a loss those that are admitted go alone: a full memory refuses admissions, and them it must not hold up.
        lost = any(item.tries for item in following)
        asking, self._gathered = ([], self._gathered) if lost else _split(self._gathered)
        wholes, self._wholes = ([], self._wholes) if lost else (self._wholes, [])
        commands = [*map(self._made, following), *self._asked(asking), *(self._asked(one, 1)[0] for one in wholes)]
        try:
            replies = await self._link.run(commands)
        except PipeLost as error:
            self._again(following, self._admitted, error)
            self._again(asking, self._gathered, error)
            for one in wholes:
                self._again_whole(one, error)
        except asyncio.CancelledError:
            self._admitted[:0] = following
            self._gathered[:0] = asking
            self._wholes[:0] = wholes
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is shown to those whom it hit, and the others go on
            _log.exception("task_admission_broken", error)
            for item in chain(following, asking, *wholes):
                item.fail(error)
        else:
            self._finish(following, replies[: len(following)])
            self._decide_all(asking, wholes, replies[len(following) :])

    def _made(self, item: _Item) -> Command:
        """The call of `task_accept`."""
        new, keep = item.new, item.keep
        names = [
            keys.job(new.job_id),
            keys.job_events(new.job_id),
            *QUEUE_KEYS,
            keys.job_index(),
            keys.expiring_index(),
            keys.STATES,
        ]
        args: list[Any] = [new.task, new.job_id, new.payload, new.traceparent, new.flow, ENQUEUED_BY]
        args += (item.admitted_ms, new.ttl_s, self._fresh_ms(item))
        args += (keep.answer(item.admitted_ms) if keep else b"", new.tenant)
        for name, value in (("tenant", new.tenant), ("trace_id", new.trace_id), ("flow", new.flow)):
            if value:
                args += (name, value)
        return command(scripts.TASK_ACCEPT, [*names, keep.name if keep else names[0]], args)

    def _fresh_ms(self, item: _Item) -> int:
        """How long after its admission a job without note and record was surely never made; -1 for ever.

        A record lives for its TTL at least, but an engine of flows shortens that, and any engine may make the job of a
        step. Of a job without a key nobody else knows, so it is new until its making was sent for the first time.
        """
        if self._of_steps:
            return 0
        return -1 if item.keep is None and not item.tries else item.new.ttl_s * 1000

    def _asked(self, items: Sequence[_Item], whole: int = 0) -> list[Command]:
        if not items:
            return []
        args: list[Any] = [self._config.tasks.max_backlog, whole]
        for item in items:
            args += (item.new.task, item.new.job_id, self._limit(item.new.task))
        return [command(self._admit, QUEUE_KEYS, args)]

    def _limit(self, name: str) -> int:
        settings = task(self._config, name)
        return settings.max_backlog if settings else 0

    def _finish(self, items: Sequence[_Item], replies: Sequence[Any]) -> None:
        for item, reply in zip(items, replies, strict=True):
            if is_error(reply):
                item.fail(RuntimeError(str(reply)))
            elif reply[0] < 0:
                item.fail(unavailable("The creation stood still for so long that the job may have been made before."))
            else:
                item.done(reply[1])

    def _decide_all(self, asking: Sequence[_Item], wholes: Sequence[list[_Item]], replies: Sequence[Any]) -> None:
        asked = [(asking, False)] if asking else []
        asked += [(one, True) for one in wholes]
        for (items, whole), reply in zip(asked, replies, strict=True):
            self._decide(items, reply, whole)
            self._reached("admitted")

    def _decide(self, items: Sequence[_Item], reply: Any, whole: bool) -> None:
        if is_error(reply):
            for item in items:
                item.fail(RuntimeError(str(reply)))
            return
        now, oldest_ms, *verdicts = reply
        refused = next((place for place, verdict in enumerate(verdicts) if verdict), None) if whole else None
        for item, own in zip(items, verdicts, strict=True):
            verdict = own if refused is None else verdicts[refused]
            if verdict == 0:
                item.admitted_ms, item.tries = now, 0
                self._admitted.append(item)
            else:
                item.fail(FullError(abs(verdict), verdict < 0, oldest_ms, refused or 0))

    def _again_whole(self, items: list[_Item], error: PipeLost) -> None:
        kept: list[_Item] = []
        self._again(items, kept, error)
        if kept:
            self._wholes.append(kept)

    def _again(self, items: Sequence[_Item], waiting: list[_Item], error: PipeLost) -> None:
        """Those that were lost with the connection come again, ahead of the others, until their tries are used up."""
        kept = []
        for item in items:
            item.tries += 1
            if item.tries > self._tries:
                item.fail(unavailable(f"Redis does not answer: {error.message}"))
            else:
                kept.append(item)
        waiting[:0] = kept


def _split(items: list[_Item]) -> tuple[list[_Item], list[_Item]]:
    """The next generation, and the rest."""
    size = 0
    for number, item in enumerate(items):
        size += len(item.new.payload)
        if number == _MOST or (number and size > _MOST_BYTES):
            return items[:number], items[number:]
    return items, []
