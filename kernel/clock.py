"""Time as a dependency: services take a `Clock`, tests give one that they move by hand."""

import asyncio
import time
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Redis `TIME` decides inside scripts; this clock only paces and measures."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller."""
        await asyncio.sleep(seconds)


def written(moment: datetime) -> str:
    """A time as answers hold it: `2026-11-28T10:00:00.123Z`, with more decimals only where it has more."""
    precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    text = moment.isoformat(timespec=precision)
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text
