"""A clock that stands still until it is told otherwise."""

from datetime import UTC, date, datetime, timedelta

DAY = timedelta(days=1)


class StandingClock:
    """What `kernel.clock.Clock` asks for."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now_ms(self) -> int:
        return round(self.at.timestamp() * 1000)

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def at(day: date, hour: int = 12, minute: int = 0) -> int:
    """A time of a day in ms."""
    return round(datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC).timestamp() * 1000)
