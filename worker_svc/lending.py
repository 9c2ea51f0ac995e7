"""Work lent to workers elsewhere: resources to fetch, and the task jobs whose task is configured as `remote`.

The story of one lent task:

- Whoever reads the queue puts a `remote` task aside, under the name of its task. Mostly those are the slots; where they
  do not read, since they are full or paused, `Waiting` does while somebody waits here. Resources are read by the lane
  of this service itself.
- `Lending` claims it in a lane of its own (`LendingLane`), as a slot would, and moves the entry to the remote worker's
  consumer, under that worker's lease (`RemoteLeases`). Its name (`Lent`) has all that any service needs later.
- A task that may have killed its workers runs alone: it is lent to a worker that holds nothing else, under the consumer
  `{worker}.solo`, and nothing is lent beside it. Resources that must run alone are for slots only.
- `Returning` takes its events, and moves it back to settle it as any other.
- A lease that lapses leaves what it held to the reaper, as a crash does.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from kernel.clock import Clock
from kernel.errors import Violation, invalid
from kernel.ledger.record import FETCH
from kernel.queue.streams.lending import LendingLane
from kernel.queue.streams.lent import Lent
from kernel.queue.streams.remote import RemoteLeases
from kernel.queue.work.types import Claim
from kernel.redis import keys
from worker_svc.waiting import LOOK_SECONDS, Waiting

SURPLUS_SECONDS = 1.0
"""How long a task that was delivered beyond what was asked for waits for the next remote worker."""
_SLICE_SECONDS = 0.5
"""How long one remote worker waits at the lane before its lease is renewed, and the next has its turn."""
_ANSWER_BYTES = 3 << 20
"""Clients of gRPC take messages of up to 4 MB unless they are told otherwise."""
Named = tuple[str, DownloadTask | QueuedTask]
"""The name of a claim and its work."""
_Claims = TypeVar("_Claims", list[Claim], "list[Claim] | None")


@dataclass(frozen=True, slots=True)
class _Move:
    """Entries that were to be moved to a worker elsewhere."""

    consumer: str
    origin: str
    to: str
    partition: int
    ids: list[str]


class Lending:
    """What `ClaimTasks` does, as one duty of the service."""

    name = "lending"

    def __init__(
        self,
        config: Config,
        lane: LendingLane,
        leases: RemoteLeases,
        waiting: Waiting,
        clock: Clock,
        remote: Collection[str],
    ) -> None:
        """`remote` are the tasks whose jobs are lent."""
        self._lane = lane
        self._leases = leases
        self._waiting = waiting
        self._clock = clock
        self._remote = remote
        self._most_tasks = max(1, _ANSWER_BYTES // config.tasks.max_payload_bytes)
        self._turn = asyncio.Lock()
        self._claimed_at = clock.monotonic()
        self._unsure: list[_Move] = []
        self._open = False

    @property
    def lease_seconds(self) -> float:
        """How long a remote worker's lease lasts without a heartbeat."""
        return self._leases.ttl_ms / 1000

    async def start(self) -> None:
        """Takes the lease under which tasks are claimed and settled for others."""
        await self._lane.start()
        self._open = True

    async def drain(self, grace: float) -> None:  # noqa: ARG002 - nothing runs here that a grace could help
        """Lends nothing more; what is lent can still be settled."""
        self._open = False

    async def stop(self) -> None:
        """Ends the lease; safe to call twice, and without a start. What is lent can be settled elsewhere."""
        self._open = False
        await self._waiting.stop()
        await self._lane.stop()

    async def tidy(self) -> None:
        """Gives back the surplus of claims when no remote worker has come for it, and what nobody knows of."""
        if self._lane.surplus and self._clock.monotonic() - self._claimed_at > SURPLUS_SECONDS:
            await self._lane.return_surplus()
        await self._take_back()
        await self._lane.agree()

    async def claim(self, worker_id: str, limit: int, wait: float, kinds: Sequence[str] = ()) -> list[Named]:
        """Up to `limit` claims, by name; waits up to `wait` seconds for the first.

        `kinds` are tasks, and `fetch` for resources; none means `fetch`. `INVALID_PAYLOAD` for a task that
        workers elsewhere do not run.
        """
        tasks = self._tasks_of(kinds)
        fetches = FETCH in kinds or not kinds
        end = self._clock.monotonic() + wait
        while self._open:
            consumer = await self._leases.join(worker_id)
            left = max(0.0, end - self._clock.monotonic())
            lent = await self._some(consumer, limit, min(left, _SLICE_SECONDS), tasks, fetches=fetches)
            if lent or left == 0:
                return lent
        return []

    def _tasks_of(self, kinds: Sequence[str]) -> list[str]:
        tasks = [kind for kind in dict.fromkeys(kinds) if kind != FETCH]
        for task in tasks:
            if task not in self._remote:
                problem = f"{task} is not run by workers elsewhere: tasks.{task}.handler is not `remote`"
                raise invalid(problem, [Violation(f"kinds[{list(kinds).index(task)}]", problem)])
        return tasks

    async def _some(
        self, consumer: str, limit: int, wait: float, tasks: Sequence[str], *, fetches: bool
    ) -> list[Named]:
        """Claims of the kinds that are wanted, within `wait` seconds."""
        if self._remote and await self._leases.runs_alone(consumer):
            await self._clock.sleep(wait)
            return []
        if not tasks:
            return await self._resources(consumer, limit, wait)
        if wait == 0:  # nobody is looking out for those who do not wait
            await self._waiting.read(0)
        end = self._clock.monotonic() + wait
        while True:
            lent = await self._tasks(consumer, limit, tasks)
            if fetches and not lent:
                # A read that blocks could not be left for a task: whoever wants both looks for resources now and then.
                lent = await self._resources(consumer, limit, 0)
            left = end - self._clock.monotonic()
            if lent or left <= 0:
                return lent
            await self._waiting.wait(tasks, min(left, LOOK_SECONDS) if fetches else left)

    async def _resources(self, consumer: str, limit: int, wait: float) -> list[Named]:
        async with self._turn:
            self._claimed_at = self._clock.monotonic()
            claims = await self._whole(self._lane.claim(limit, wait))
        return await self._hand_over(consumer, claims)

    async def _tasks(self, consumer: str, limit: int, tasks: Sequence[str]) -> list[Named]:
        most = min(limit, self._most_tasks)
        claims = await self._whole(self._lane.collect(tasks, most, empty=False))
        if claims is None and await self._leases.is_empty(consumer):
            claims = await self._whole(self._lane.collect(tasks, most, empty=True))
        return await self._hand_over(consumer, claims or [])

    async def _whole(self, claims: Coroutine[Any, Any, _Claims]) -> _Claims:
        """A claim that is not cut short when its caller hangs up: what it brings then goes back."""
        claiming = asyncio.ensure_future(claims)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await self._lane.give_back(await claiming or [])
            raise

    async def _hand_over(self, consumer: str, claims: Sequence[Claim]) -> list[Named]:
        lent: list[Claim] = []
        try:
            lent = await self._lend(consumer, [claim for claim in claims if _is_lent(claim)])
        finally:
            # A caller that has hung up, a lease that has lapsed meanwhile, a resource that must run alone.
            kept = {id(claim) for claim in lent}
            rest = [claim for claim in claims if id(claim) not in kept]
            if rest:
                await asyncio.shield(self._lane.give_back(rest))
        return [(_named(consumer, claim).name(), _as_lent(claim)) for claim in lent]

    async def _lend(self, consumer: str, claims: Sequence[Claim]) -> list[Claim]:
        """Moves claims to their worker; those that it has now."""
        together: dict[tuple[int, bool], list[Claim]] = defaultdict(list)
        for claim in claims:
            together[claim.partition, claim.solo].append(claim)
        mine, lent = self._lane.worker_id, []
        for (partition, solo), some in together.items():
            ids = [claim.entry for claim in some]
            origin, to = (keys.solo(mine), keys.solo(consumer)) if solo else (mine, consumer)
            try:
                moved = await self._leases.transfer(consumer, origin, to, partition, ids) or []
            except BaseException:
                self._unsure.append(_Move(consumer, origin, to, partition, ids))
                raise
            lent += [claim for claim, is_moved in zip(some, moved, strict=False) if is_moved]
        self._lane.lend(lent)
        return lent

    async def _take_back(self) -> None:
        """What may have been moved by a call that failed is taken back: its worker never heard of it.

        Then it is this lane's, which gives back what nobody here knows of. After a lapse of the worker's lease the
        reaper has it.
        """
        while self._unsure:
            move = self._unsure[0]
            await self._leases.transfer(move.consumer, move.to, move.origin, move.partition, move.ids)
            self._unsure.remove(move)


def _is_lent(claim: Claim) -> bool:
    """Resources that must run alone are for the slots."""
    return claim.queued is not None or not claim.solo


def _named(consumer: str, claim: Claim) -> Lent:
    holder = keys.solo(consumer) if claim.solo else consumer
    job_id = claim.job_id if claim.queued is not None else ""
    return Lent(holder, claim.partition, claim.entry, claim.token, claim.attempt, claim.crashes, job_id)


def _as_lent(claim: Claim) -> DownloadTask | QueuedTask:
    work = DownloadTask() if claim.queued is None else QueuedTask()
    work.CopyFrom(claim.work)  # type: ignore[arg-type]  # both are of the same kind
    work.attempt = claim.attempt + 1
    return work
