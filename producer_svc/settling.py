"""Files that may still be written: they are put aside until they have been left alone for long enough.

A file is settled once its time of change is `settle` ago. Where that time lies in the future, as a wrong clock writes
it, the file must be the same at a second look `settle` later. A file that the watcher has just seen changing waits
`settle` from then on, whatever its time of change says.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

from kernel.clock import Clock
from producer_svc.found import Found

MOST: Final = 10_000
"""Files that wait at the same time; the next scan finds the others."""


class FileSettling:
    """What waits, by path."""

    def __init__(self, settle: float, clock: Clock) -> None:
        self.settle = settle
        self.overflowed = False
        """Whether there was no room for a file since somebody last set this to false."""
        self.hinted = asyncio.Event()
        """Set by each change that was seen."""
        self._clock = clock
        self._held: dict[str, tuple[float, Found | None]] = {}
        self._order: list[tuple[float, str]] = []
        """A heap of when to look at what; the time in `_held` is the one that counts."""

    def __len__(self) -> int:
        return len(self._held)

    def settled(self, file: Found) -> bool:
        """Whether a file that was just looked at may be taken; else it waits from now on, where there is room."""
        if file.path in self._held:
            return False
        age = self._age(file)
        if not self.settle or age >= self.settle:
            return True
        self._hold(file.path, self.settle - age if age >= 0 else self.settle, file)
        return False

    def settled_again(self, before: Found | None, file: Found) -> bool:
        """The same for a file that has waited since it was `before`; None where it was not looked at then."""
        return file == before or self.settled(file)

    def changed(self, path: str) -> None:
        """A file or directory was seen changing; it is looked at once it was left alone."""
        self._hold(path, self.settle, None)
        self.hinted.set()

    def again(self, path: str, wait: float) -> None:
        """A file or directory is to be looked at once more in so many seconds."""
        self._hold(path, wait, None)

    def due(self, most: int) -> list[tuple[str, Found | None]]:
        """Paths whose wait is over, with what was known of them; they wait no longer."""
        found: list[tuple[str, Found | None]] = []
        now = self._clock.monotonic()
        while self._order and self._order[0][0] <= now and len(found) < most:
            _, path = heapq.heappop(self._order)
            when, before = self._held[path]
            if when > now:
                heapq.heappush(self._order, (when, path))
            else:
                del self._held[path]
                found.append((path, before))
        return found

    def next_due(self) -> float:
        """Seconds until something is due; infinite where nothing waits."""
        return max(0.0, self._order[0][0] - self._clock.monotonic()) if self._order else float("inf")

    def _age(self, file: Found) -> float:
        return self._clock.now_ms() / 1000 - file.mtime_ns / 1e9

    def _hold(self, path: str, wait: float, file: Found | None) -> None:
        when = self._clock.monotonic() + wait
        if path not in self._held:
            if len(self._held) >= MOST:
                self.overflowed = True
                return
            heapq.heappush(self._order, (when, path))
        self._held[path] = (when, file)
