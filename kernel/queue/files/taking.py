"""Taking file jobs from the queues: the higher first, in one script, and none from a queue whose breaker is open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernel.breakers import names as circuits
from kernel.breakers.types import Admission
from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.queue.files.share import Share
from kernel.redis import keys, scripts
from kernel.redis.link import Link, command, is_error
from kernel.telemetry.logs import get_logger

MOST = 500
"""Jobs of one take, so that no script holds Redis for long."""
_REFUSED_PAUSE = 0.5
_PROBE_PAUSE = 1.0
"""How soon a queue is looked at again of which only a probe could be taken."""
_log = get_logger(__name__)


class FileGate(Protocol):
    """The circuit breakers, as a lane sees them (`kernel.breakers.Breakers`)."""

    def known(self, name: str) -> Admission | None:
        """The answer where no server has to be asked."""
        ...

    async def admit(self, name: str) -> Admission:
        """Whether jobs may be taken now."""
        ...

    def record(self, name: str, *, ok: bool, admission: Admission | None = None) -> None:
        """Takes the result of a job."""
        ...

    def release(self, name: str, admission: Admission) -> None:
        """A job has ended without a result."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that Redis counts as ours."""

    queue: int
    """The number of its queue, from 0 for the highest."""
    job: bytes
    solo: bool = False
    admission: Admission | None = None


def breaker_of(queue: str) -> str:
    """The name of a queue's circuit breaker."""
    return circuits.of_queue(queue)


class Taking:
    """The takes of one worker."""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        names: ListNames,
        worker: str,
        share: float,
        gate: FileGate | None,
        suspects: Callable[[int], None],
    ) -> None:
        """`suspects` is told how many jobs wait to be run alone."""
        self.last_poll = clock.monotonic()
        """When a take was last answered, by the monotonic clock."""
        self.ask_again = math.inf
        """When a queue that was left alone may be asked for again, by the monotonic clock."""
        self._suspects = suspects
        self._link = link
        self._clock = clock
        self._queues = names.queues
        self._share = Share(share, len(names.queues))
        self._gate = gate
        self._keys = [names.heartbeat(worker), names.processing(worker), keys.FILE_SUSPECTS]
        self._solo_keys = [names.heartbeat(worker), names.processing(keys.solo(worker)), keys.FILE_SUSPECTS]

    async def take(self, limit: int) -> tuple[list[Taken], list[int]]:
        """Up to `limit` jobs, and the queues at which more may be waited for: those that are not left alone.

        Fewer jobs than the limit and `MOST` mean that those queues are empty. Raises `PipeLost`.
        """
        self.ask_again = math.inf
        admissions = [await self.admit(queue) for queue in range(len(self._queues))]
        found: set[int] = set()
        try:
            taken = await self._run([*self._keys, *self._queues], self._terms(limit, admissions))
            found.update(queue for queue, _ in taken or ())
        finally:
            for queue, admission in enumerate(admissions):
                if admission.probe and queue not in found:
                    self.release(queue, admission)
        if taken is None:
            self._later(_REFUSED_PAUSE)
            return [], []
        self._share.taken(queue for queue, _ in taken)
        jobs = [Taken(queue, job, admission=admissions[queue]) for queue, job in taken]
        return jobs, [queue for queue, a in enumerate(admissions) if a.allowed and not a.probe]

    def _terms(self, limit: int, admissions: Sequence[Admission]) -> list[int]:
        most = [0 if not a.allowed else 1 if a.probe else limit for a in admissions]
        return [min(limit, MOST), self._share.low(limit), self._share.turn, *most]

    async def suspect(self) -> Taken | None:
        """A job to be run alone, if there is one; its queue is the lowest for now. Raises `PipeLost`."""
        taken = await self._run([*self._solo_keys, keys.FILE_SUSPECTS], [1, 0, 0, 1])
        if not taken:
            self._suspects(0)
            return None
        return Taken(len(self._queues) - 1, taken[0][1], solo=True)

    async def admit(self, queue: int) -> Admission:
        """The answer of a queue's breaker."""
        if self._gate is None:
            return _ALLOWED
        name = breaker_of(self._queues[queue])
        admission = self._gate.known(name) or await self._gate.admit(name)
        if admission.probe:
            self._later(_PROBE_PAUSE)
        elif not admission.allowed:
            self._later(max(admission.retry_after, 0.01))
        return admission

    def _later(self, wait: float) -> None:
        self.ask_again = min(self.ask_again, self._clock.monotonic() + wait)

    def record(self, queue: int, admission: Admission | None, *, ok: bool) -> None:
        """Tells the breaker of a queue how a job has ended."""
        if self._gate is not None:
            self._gate.record(breaker_of(self._queues[queue]), ok=ok, admission=admission)

    def release(self, queue: int, admission: Admission | None) -> None:
        """Tells the breaker of a queue that a job has ended without a result."""
        if self._gate is not None and admission is not None:
            self._gate.release(breaker_of(self._queues[queue]), admission)

    async def _run(self, names: Sequence[str], args: Sequence[int]) -> list[tuple[int, bytes]] | None:
        """Queue and job of each; None where Redis refuses to tell, or does not know of our heartbeat."""
        (reply,) = await self._link.run([command(scripts.FILE_TAKE, names, args)])
        if is_error(reply):
            _log.error("list_take_refused", error=str(reply))
            return None
        if reply[0] == -1:
            return None
        self.last_poll = self._clock.monotonic()
        self._suspects(reply[0])
        if reply[1]:
            _log.error("list_queue_refused", error=reply[1].decode(errors="replace"))
        return list(zip(reply[2::2], reply[3::2], strict=True))


_ALLOWED = Admission(allowed=True)
