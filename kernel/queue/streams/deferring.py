"""Work whose circuit is open waits before it begins: no `running`, no attempt, and no slot is held.

The circuits are asked for a whole batch before its `start`. As long as every circuit of the fleet is closed, which this
process knows from a list that is read beside the work, that costs nothing. Of what is turned away the job says so in
its events, at most once a minute, and its entry waits in the delay set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import orjson

from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.breakers.types import Admission
from kernel.ledger.base import record_keys
from kernel.queue.streams.entry import QueueEntry
from kernel.queue.streams.publications import Flush
from kernel.queue.work.tally import Tally
from kernel.redis import keys, scripts
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command

DEFERRED_EVERY_MS: Final = 60_000
"""How often the events of a job say that it waits."""


@dataclass(frozen=True, slots=True)
class Deferral:
    """Why work does not begin now."""

    code: str
    """A failure code, for instance `HANDLER_CIRCUIT_OPEN`."""
    seconds: float
    """After which it is delivered again."""


class CircuitGate(Protocol):
    """The circuits, as a lane asks them."""

    async def all_closed(self) -> bool:
        """Whether nothing needs to be asked."""
        ...

    async def ask(self, entry: QueueEntry) -> Deferral | None:
        """Why the work of an entry is to wait; None where it may begin. Notes in the entry that it is a probe."""
        ...

    def release(self, circuit: str, admission: Admission) -> None:
        """A probe that has told nothing leaves its place to others."""
        ...


class Deferring:
    """Turns away what is not to begin now."""

    def __init__(
        self, link: Link, gate: CircuitGate | None, worker: str, crash_limit: int, hint: Callable[[float], None]
    ) -> None:
        """`crash_limit`: what has lost its process so often is not begun but ended, and asks for no leave.

        `hint` is told in how many seconds something will be due.
        """
        self._link = link
        self._gate = gate
        self._worker = worker
        self._hint = hint
        self._crash_limit = crash_limit
        self._tallies = {True: Tally(keys.QUEUE), False: Tally(keys.TASKS)}

    async def admitted(self, flush: Flush, entries: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        """The entries that may begin, in their order; the others are put off by `flush`. Raises `PipeLost`."""
        gate = self._gate
        if gate is None or not entries or await gate.all_closed():
            return entries
        asking = [entry for entry in entries if entry.crashes < self._crash_limit and entry.admission is None]
        asking.sort(key=lambda entry: (entry.attempts, entry.crashes))  # fresh work is the better probe
        answers = await asyncio.gather(*map(gate.ask, asking))
        turned = [(entry, answer) for entry, answer in zip(asking, answers, strict=True) if answer is not None]
        if not turned:
            return entries
        replies = await self._link.run([_said(entry, deferral) for entry, deferral in turned])
        waiting = set[int]()
        for (entry, deferral), reply in zip(turned, replies, strict=True):
            if is_error(reply) or reply == 1 or (reply == -1 and not entry.queued and not entry.ledgered):
                self._put_off(flush, entry, deferral)
                self._hint(deferral.seconds)
                waiting.add(id(entry))
        return [entry for entry in entries if id(entry) not in waiting]

    def release(self, entries: Iterable[QueueEntry]) -> None:
        """Entries that do not begin after all: a probe among them leaves its place."""
        for entry in entries:
            if self._gate is not None and entry.admission is not None:
                self._gate.release(entry.circuit, entry.admission)
                entry.circuit, entry.admission = "", None

    def _put_off(self, flush: Flush, entry: QueueEntry, deferral: Deferral) -> None:
        holder = keys.solo(self._worker) if entry.solo else self._worker
        delay_ms = int(deferral.seconds * 1000)
        flush.parked[entry.lane] += (holder, entry.id, delay_ms, entry.attempts, entry.crashes)
        self._tallies[entry.queued].ended("deferred")


def _said(entry: QueueEntry, deferral: Deferral) -> Command:
    work = entry.work
    assert work is not None  # noqa: S101 - only decoded entries are asked for
    told: dict[str, str | int] = {"code": deferral.code, "delay_ms": int(deferral.seconds * 1000)}
    if isinstance(work, DownloadTask):
        told["resource_id"] = work.resource_id
    args: list[str | bytes | int] = ["worker.claim", orjson.dumps(told), DEFERRED_EVERY_MS]
    return command(scripts.DEFER, record_keys(work.job_id), args)
