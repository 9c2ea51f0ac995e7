"""The lanes of a worker service: what was delivered beyond the free slots is handed back when nobody gets to it."""

from __future__ import annotations

from collections.abc import Iterable

from kernel.lanes.stream import StreamLane
from kernel.lanes.types import Claim


class WorkerLane(StreamLane):
    """The lane of the slots. A read takes a share from every partition, so it may bring more than was asked for."""

    @property
    def surplus(self) -> int:
        """How many entries wait here for the next claim, while other workers may be idle."""
        return len(self._kept)

    async def return_surplus(self) -> None:
        """Gives them back; that costs them neither an attempt nor a crash. Raises `UNAVAILABLE`."""
        async with self._claiming:
            rest, self._kept = self._kept, []
            await self._return([(entry.partition, entry.id) for entry in rest])


class LendingLane(WorkerLane):
    """The lane that claims and settles for workers elsewhere; what it has lent is no longer its own."""

    def lend(self, claims: Iterable[Claim]) -> None:
        """Forgets claims that were moved to another consumer."""
        for claim in claims:
            self._held.pop((claim.partition, claim.entry), None)

    def adopt(self, claim: Claim) -> Claim:
        """A claim that was moved (back) to this lane, as one that it may settle."""
        claim.epoch = self.epoch
        return claim
