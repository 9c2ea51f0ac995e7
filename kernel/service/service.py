"""One life cycle for every server and background duty: start, drain, stop.

A service is a list of duties. It starts them in order, and on the way out drains them all (no new work, running work
may finish within the grace) and stops them in reverse. Stopping twice is stopping once.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kernel.clock import Clock, SystemClock
from kernel.tasks import ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

log = get_logger("service")


class Duty(Protocol):
    """Something that runs as long as its service does."""

    name: str

    async def start(self) -> None:
        """Begins; an exception ends the start of the whole service."""
        ...

    async def drain(self, grace: float) -> None:
        """Takes no new work and lets running work finish, for at most `grace` seconds."""
        ...

    async def stop(self) -> None:
        """Ends at once; safe to call twice, and without a start."""
        ...


class Loop:
    """A duty that is one task: `run` goes on until it is stopped, and there is nothing to wait for in a drain."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins."""
        self._task = asyncio.create_task(self.run(), name=self.name)

    async def drain(self, grace: float) -> None:
        """Goes on until the stop."""

    async def stop(self) -> None:
        """Cancels the run, wherever it is; safe twice."""
        task, self._task = self._task, None
        await ended(task)

    async def run(self) -> None:
        """What the duty does; ends only by cancellation."""
        raise NotImplementedError


class Periodic(Loop):
    """A duty that does one thing again and again, whatever happens: an exception is logged and the next turn comes.

    The pause is `interval` seconds, varied by `jitter`, so that many processes do not act in step; after failures it
    doubles up to 30 seconds. `last_success` is the clock's monotonic time of the last turn that went well.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        work: Callable[[], Awaitable[object]],
        clock: Clock | None = None,
        jitter: float = 0.1,
    ) -> None:
        super().__init__(name)
        self.last_success: float | None = None
        self._interval = interval
        self._work = work
        self._clock = clock or SystemClock()
        self._jitter = jitter

    async def run(self) -> None:
        """One turn after the other, the first one at once."""
        failures = 0
        while True:
            try:
                await self._work()
                self.last_success = self._clock.monotonic()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the loop survives everything; each failure is told
                failures += 1
                metrics.DUTY_FAILURES.labels(self.name).inc()
                log.warn("duty_failed", duty=self.name, error=error, failed=failures)
            await self._clock.sleep(self._pause(failures))

    def _pause(self, failures: int) -> float:
        pause = self._interval if not failures else min(30.0, self._interval * 2 ** min(failures - 1, 10))
        return pause * random.uniform(1 - self._jitter, 1 + self._jitter)  # noqa: S311 - spreads load, hides nothing


class Service:
    """All duties of one process or role."""

    def __init__(self, name: str, duties: Sequence[Duty]) -> None:
        self.name = name
        self.duties = tuple(duties)
        self._started: list[Duty] = []

    async def start(self) -> None:
        """Starts every duty in order; if one fails, those before it are stopped and its error is raised."""
        for duty in self.duties:
            try:
                await duty.start()
            except BaseException:
                await duty.stop()
                await self.stop()
                raise
            self._started.append(duty)
        log.info("service_started", role=self.name)

    async def drain(self, grace: float) -> None:
        """Drains all duties at the same time."""
        results = await asyncio.gather(*(duty.drain(grace) for duty in self._started), return_exceptions=True)
        for duty, result in zip(self._started, results, strict=True):
            if isinstance(result, Exception):
                log.warn("drain_failed", duty=duty.name, error=result)

    async def stop(self) -> None:
        """Stops what was started, last first."""
        while self._started:
            await self._started.pop().stop()

    async def run_until_signal(self, grace: float = 30.0) -> None:
        """Serves until SIGTERM or SIGINT, then drains; a second signal ends the drain at once."""
        signals: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signals.put_nowait, number)
        await self.start()
        try:
            await signals.get()
            log.info("service_draining", role=self.name)
            drain = asyncio.create_task(self.drain(grace))
            impatient = asyncio.create_task(signals.get())
            await asyncio.wait({drain, impatient}, return_when=asyncio.FIRST_COMPLETED)
            for task in (drain, impatient):
                task.cancel()
            await asyncio.gather(drain, impatient, return_exceptions=True)
        finally:
            await self.stop()
