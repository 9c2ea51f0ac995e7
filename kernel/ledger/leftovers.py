"""What lies on the queue and is of no use: what workers of others acknowledged, and canceled jobs that nobody took."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel.clock import Clock
from kernel.config.loading import TASKS
from kernel.errors import FetchboxError
from kernel.ledger.base import TERMINAL
from kernel.log.offsets import START, parse_id
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

_log = get_logger(__name__)
_STEP = 100
"""Entries that one script looks at; each of them may hold 200 KB."""
_LYING = [keys.SLOTS, keys.DELAYED, keys.RETURNED, *map(keys.routed, TASKS)]
"""Under these names entries wait to be taken; those that only workers elsewhere run, maybe for ever."""
_STEPS = 20
"""Scripts of one look at what nobody has read."""
_PAUSE = 1.0
"""The least time between two looks for room, in seconds."""


_Rows = list[tuple[bytes, dict[bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class _Left:
    """An entry that was read and is in no worker's hands."""

    id: str
    job_id: str
    counted: str
    """The task under which it is counted as open; empty for another's entry."""
    lies: str
    """Not empty where it waits to be taken, and was not acknowledged."""

    def is_over(self, status: str | None) -> bool:
        """Whether it may go, by the status of its job, None without a record.

        One that waits and has failed is still to become a dead letter: whoever takes it sees to that. One that waits
        and is another's may get its record from whoever takes it.
        """
        if self.lies:
            return status == "canceled" or (status is None and bool(self.counted))
        return status is None or status in TERMINAL


def _unread(entry: bytes, fields: Mapping[bytes, bytes]) -> _Left:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode(errors="replace")

    return _Left(entry.decode(), text(b"job_id"), text(b"task") if b"ledger" in fields else "", "1")


class Leftovers:
    """Clears the queue of them. Every method raises `UNAVAILABLE` where Redis does not answer, unless it says else.

    `announce` is called with the jobs whose entries are about to be deleted, and publishes their status.
    """

    def __init__(
        self, clients: RedisClients, clock: Clock, announce: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._announce = announce
        self._looking: asyncio.Task[bool] | None = None
        self._looked_at = -_PAUSE
        self._after = START

    async def clear(self) -> list[str]:
        """Deletes entries that were read and are of no use; the ids of their jobs.

        One with nobody whose job has not ended was never acknowledged: a worker writes the end of a job first. Its
        consumer was deleted, and it is given back to be run.
        """
        after, cleared = "-", list[str]()
        while after:
            following, *found = await self._clients.call(
                scripts.TASK_TIDY, [keys.QUEUE], [keys.GROUP_WORKERS, after, _STEP, *_LYING]
            )
            cleared += await self._settle(
                [_Left(*(part.decode(errors="replace") for part in found[i : i + 4])) for i in range(0, len(found), 4)]
            )
            after = following.decode()
        return cleared

    async def made_room(self) -> bool:
        """Whether a look at the queue, at most one a second and one for all who ask, has found any room.

        False where Redis does not answer.
        """
        if self._looking is None:
            now = self._clock.monotonic()
            if now - self._looked_at < _PAUSE:
                return False
            self._looked_at = now
            self._looking = asyncio.create_task(self._make_room(), name="queue-leftovers")
        looking = self._looking
        try:
            return await asyncio.shield(looking)
        except FetchboxError:
            return False
        finally:
            if looking.done() and self._looking is looking:
                self._looking = None

    async def stop(self) -> None:
        """Ends a look that is under way. Safe twice."""
        await ended(self._looking)

    async def recount(self) -> bool:
        """Counts open entries anew where others have deleted some; whether it had to."""
        counted = False
        names = [keys.QUEUE, keys.open_tasks(), keys.counting_tasks()]
        while await self._clients.call(scripts.TASK_COUNT, names, [_STEP]):
            counted = True
        return counted

    async def _make_room(self) -> bool:
        before = await self._open()
        cleared = await self.clear() + await self._clear_unread()
        await self.recount()
        return bool(cleared) or await self._open() != before

    async def _open(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await self._clients.commands.execute_command("HGETALL", keys.open_tasks())
        return found

    async def _clear_unread(self) -> list[str]:
        """Deletes entries that nobody has read and whose jobs are canceled or gone, among the next two thousand."""
        cleared: list[str] = []
        after = max(self._after, await self._delivered(), key=parse_id)
        for _ in range(_STEPS):
            rows: _Rows = await self._clients.commands.execute_command(
                "XRANGE", keys.QUEUE, f"({after}", "+", "COUNT", _STEP
            )
            cleared += await self._settle([_unread(entry, fields) for entry, fields in rows])
            after = rows[-1][0].decode() if len(rows) == _STEP else START
            if after == START:
                break
        self._after = after
        return cleared

    async def _delivered(self) -> str:
        """The last entry that the group has read."""
        if not await self._clients.commands.exists(keys.QUEUE):
            return START
        groups = await self._clients.commands.xinfo_groups(keys.QUEUE)
        read = [group["last-delivered-id"] for group in groups if group["name"] == keys.GROUP_WORKERS.encode()]
        return read[0].decode() if read else START

    async def _settle(self, left: Sequence[_Left]) -> list[str]:
        """Deletes the entries of ended jobs, whose ids it returns, and gives the others back."""
        over: list[_Left] = []
        lost: list[_Left] = []
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for entry in left:
                batch.hget(keys.job(entry.job_id), "status")
            for entry, status in zip(left, await batch.execute(), strict=True):
                if entry.is_over(status and status.decode()):
                    over.append(entry)
                elif not entry.lies:
                    lost.append(entry)
        if lost:
            _log.warn("queue_entries_returned", count=len(lost))
            await self._clients.call(
                scripts.TASK_RETURN, [keys.QUEUE], [keys.GROUP_WORKERS, *(entry.id for entry in lost)]
            )
        job_ids = [entry.job_id for entry in over if entry.job_id]
        if over:
            # Bare workers write the record alone, and nothing moves the job to the index of its state.
            await self._clients.call(scripts.RELIST, [keys.STATES], [keys.job(job_id) for job_id in job_ids])
            await self._announce(job_ids)
            await self._clients.call(
                scripts.TASK_ACKNOWLEDGE,
                keys.QUEUE_PLACES,
                [keys.GROUP_WORKERS, *(part for entry in over for part in (entry.id, entry.counted))],
            )
        return job_ids
