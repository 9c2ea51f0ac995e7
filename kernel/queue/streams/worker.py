"""The lanes of a worker service: what was delivered beyond the free slots is handed back when nobody gets to it."""

from __future__ import annotations

import asyncio

from kernel.queue.streams.stream import StreamLane


class WorkerLane(StreamLane):
    """The lane of the slots. A read takes a share from every partition, so it may bring more than was asked for."""

    @property
    def surplus(self) -> int:
        """How many entries wait here for the next claim, or may come for it, while other workers may be idle."""
        return len(self._kept) + self._reader.going_on

    async def return_surplus(self) -> None:
        """Gives them back; that costs them neither an attempt nor a crash. Raises `UNAVAILABLE`."""
        async with self._claiming:
            rest, self._kept = self._kept + self._reader.brought(), []
            await self._return([(entry.partition, entry.id) for entry in rest])

    @property
    def routed(self) -> asyncio.Event:
        """Set when a task was put aside for workers elsewhere; whoever waits for it clears it."""
        return self._starter.routed

    def look(self) -> None:
        """Says that tasks for the slots were put aside: the next claim takes them first."""
        self._takeover.hint(0)
