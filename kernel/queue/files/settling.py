"""File jobs leave the processing list: settlements gather while a reply is awaited, and then go as one batch.

A batch is one script, numbered, and it is sent until its reply comes: what a repetition finds done is not done again,
also where several copies of one job are held (`file_settle`). Nothing is swallowed: what cannot go where it belongs is
tried again until it can, or until the lease lapses.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command, PipeLost
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

_MOST = 256
"""Settlements in one batch, so that no script holds Redis for long."""
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_PROCESSING, _SOLO, _QUEUES = 2, 3, 9
"""Places among the keys of the script."""
_log = get_logger(__name__)


@dataclass(slots=True)
class Settlement:
    """One job and where it goes."""

    kind: str
    """As in `file_settle`: `c`, `b`, `r`, `g` or `a`."""
    job: bytes
    solo: bool
    epoch: int
    """The life of the lease under which it was taken."""
    done: Callable[[bool], None]
    """Is told whether the job was still the worker's."""
    queue: int = 0
    """Its number, from 0 for the highest; of kinds `r` and `g`."""
    value: bytes = b""
    wait_ms: int = 0


class Settling:
    """The one writer of a worker's processing lists."""

    def __init__(
        self,
        link: Link,
        names: ListNames,
        worker: str,
        life: str,
        keep_ms: int,
        clock: Clock,
        valid: Callable[[int], bool],
    ) -> None:
        """`life` is unique to this object. `keep_ms`: how long a batch may be repeated; `valid` tells of an epoch."""
        self._link = link
        self._clock = clock
        self._valid = valid
        self._life = life
        self._keys = [
            keys.file_batch(life),
            names.processing(worker),
            names.processing(keys.solo(worker)),
            names.completed,
            names.dead_letters,
            keys.FILE_DELAYED,
            keys.FILE_CRASHES,
            keys.FILE_SUSPECTS,
            *names.queues,
        ]
        self._keep_ms = keep_ms
        self._gathered: list[Settlement] = []
        self._batch: list[Settlement] = []
        self._number = 0
        self._names = 0
        self._call: Command = ()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to work."""
        self._task = asyncio.create_task(self._run(), name="list-settling")

    async def flush(self) -> None:
        """Waits until nothing is left to settle."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Stops at once; what is not settled stays on the list, for the reaper. Safe twice."""
        task, self._task = self._task, None
        await ended(task)
        self._fence([*self._batch, *self._gathered])
        self._batch, self._gathered = [], []

    def add(self, settlement: Settlement) -> None:
        """Takes a settlement."""
        self._gathered.append(settlement)
        self._idle.clear()
        self._wake.set()

    def unfinished(self) -> Counter[tuple[bool, bytes]]:
        """What may still be on the lists for want of a reply: how many of each job, on the list of solo runs or not."""
        return Counter((one.solo, one.job) for one in (*self._batch, *self._gathered))

    async def _run(self) -> None:
        pause = _PAUSE
        while True:
            await self._wake.wait()
            try:
                good = await self._cycle()
            except PipeLost as lost:
                _log.warn("list_link_lost", error=str(lost))
                good = False
            except Exception as error:  # noqa: BLE001 - a fault of ours is shown, and never ends the settling silently
                _log.exception("list_settlement_broken", error)
                good = False
            if not good:
                await self._clock.sleep(pause)
            pause = _PAUSE if good else min(pause * 2, _LONGEST_PAUSE)
            if not (self._gathered or self._batch):
                self._wake.clear()
                self._idle.set()

    async def _cycle(self) -> bool:
        """Sends one batch; whether all of it went where it belongs."""
        if self._batch and not self._valid(self._batch[0].epoch):
            self._fence(self._batch)
            self._batch = []
        if not self._batch and not self._next_batch():
            return True
        (reply,) = await self._link.run([self._call])
        if is_error(reply) or len(reply) != len(self._batch):
            _log.error("list_settlement_refused", error=str(reply))
            return False
        batch, self._batch = self._batch, []
        stuck: list[Settlement] = []
        for one, letter in zip(batch, reply.decode(), strict=True):
            if letter == "e":
                stuck.append(one)
            else:
                one.done(letter == "y")
        if stuck:
            _log.error("list_settlement_stuck", count=len(stuck))
            self._gathered += stuck
        return not stuck

    def _next_batch(self) -> bool:
        taken, self._gathered = self._gathered[:_MOST], self._gathered[_MOST:]
        self._batch = [one for one in taken if self._valid(one.epoch)]
        self._fence([one for one in taken if not self._valid(one.epoch)])
        if self._batch:
            self._number += 1
            self._call = self._packed(self._batch)
        return bool(self._batch)

    def _packed(self, batch: Sequence[Settlement]) -> Command:
        args: list[Arg] = [self._number, self._keep_ms]
        for one in batch:
            name = ""
            if one.kind == "r":
                self._names += 1
                name = f"{self._life}:{self._names}"
            place = _SOLO if one.solo else _PROCESSING
            args += (one.kind, place, one.job, one.queue + _QUEUES, one.value, one.wait_ms, name)
        return command(scripts.FILE_SETTLE, self._keys, args)

    @staticmethod
    def _fence(settlements: Sequence[Settlement]) -> None:
        """Jobs that others will have, or have by now, and that those decide about."""
        for one in settlements:
            one.done(False)
