"""Jobs that Redis counts as a worker's and that nobody there knows of go back to their queues.

A reply that was lost after the server had moved a job strands it under a live owner, where no reaper may take it. What
a look finds may still be in a reply that is on its way, so it is given back only when the next look, a second later at
least, finds it as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.queue.work.file_job import JobError, read
from kernel.redis import keys
from kernel.redis.link import Link, is_error
from kernel.service.service import Loop
from kernel.telemetry.logs import get_logger

_TICK = 1.0
_AFTER_RECONNECT = 1.0
_MOST = 10_000
_log = get_logger(__name__)

Held = Counter[tuple[bool, bytes]]
"""How many copies of each job, on the list of solo runs or on the other."""


class Strays(Loop):
    """Looks for strays every half lease, and soon after a connection was lost."""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        names: ListNames,
        worker: str,
        interval: float,
        known: Callable[[], Held],
        connects: Callable[[], int],
        give_back: Callable[[Held], None],
    ) -> None:
        """`connects` counts the connections of the lane. Times are in seconds."""
        super().__init__("lists.strays")
        self._link = link
        self._clock = clock
        self._names = names
        self._lists = (names.processing(worker), names.processing(keys.solo(worker)))
        self._interval = interval
        self._known = known
        self._connects = connects
        self._connected = connects()
        self._give_back = give_back
        self._doubted: Held = Counter()
        self._doubted_at = 0.0
        self._next = clock.monotonic() + interval

    def soon(self) -> None:
        """Looks at the next turn: there is a new lease."""
        self._next = 0.0

    async def run(self) -> None:
        """One turn a second."""
        while True:
            await self._clock.sleep(_TICK)
            connects = self._connects()
            if connects != self._connected:
                self._connected = connects
                self._next = min(self._next, self._clock.monotonic() + _AFTER_RECONNECT)
            if self._clock.monotonic() >= self._next:
                try:
                    await self.look(self._known)
                except Exception as error:  # noqa: BLE001 - the loop survives every outage, and the next turn comes
                    _log.warn("strays_lost", error=error)

    async def look(self, known: Callable[[], Held]) -> int:
        """One look; how many jobs it gave back. Raises `PipeLost`."""
        held = await self.held(known)
        now = self._clock.monotonic()
        strays = held - known()
        found = Held()
        if now - self._doubted_at >= _TICK:
            found = strays & self._doubted
            self._doubted, self._doubted_at = strays - found, now
        self._next = now + (_TICK if strays else self._interval)
        if found:
            _log.warn("list_stranded", count=found.total())
            self._give_back(found)
        return found.total()

    async def held(self, known: Callable[[], Held] | None = None) -> Held:
        """What the lists of the worker hold; nothing where their lengths are those that are `known`."""
        lengths = await self._link.run([("LLEN", name) for name in self._lists])
        if known is not None:
            jobs = known()
            alone = sum(count for (solo, _), count in jobs.items() if solo)
            if lengths == [jobs.total() - alone, alone]:
                return Held()
        replies = await self._link.run([("LRANGE", name, -_MOST, -1) for name in self._lists])
        return Held((bool(solo), job) for solo, reply in enumerate(replies) if not is_error(reply) for job in reply)


def queue_of(names: ListNames, job: bytes) -> int:
    """The number of the queue where a job belongs, by its own members; the lowest where it cannot be read."""
    try:
        found = read(job)
    except JobError:
        return len(names.queues) - 1
    return names.queues.index(names.queue_of(found.origin_queue, found.priority))
