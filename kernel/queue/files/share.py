"""How many of the next file jobs are taken from the lower queues first, so that they do not starve (off by default)."""

from __future__ import annotations

from collections.abc import Iterable


class Share:
    """A credit: each job that is taken adds `share` to it, each that comes from a lower queue costs one."""

    def __init__(self, share: float, queues: int) -> None:
        """`share` is 0 to 0.5; there are so many `queues`."""
        self._share = share
        self._lower = queues - 1
        self._credit = 0.0
        self._turn = 0

    def low(self, limit: int) -> int:
        """How many of the next `limit` jobs are to come from the lower queues, if there are so many."""
        return int(self._credit + self._share * limit) if self._lower else 0

    @property
    def turn(self) -> int:
        """The lower queue that comes first now, from 0."""
        return self._turn

    def taken(self, queues: Iterable[int]) -> None:
        """Jobs were taken from these queues, the highest being 0.

        What empty lower queues have missed is forgotten but for one job, and what they got while the highest was
        empty costs them nothing later.
        """
        credit = self._credit
        for queue in queues:
            credit += self._share - (1 if queue else 0)
            if queue:
                self._turn = queue % self._lower
        self._credit = min(max(credit, 0.0), 1.0)
