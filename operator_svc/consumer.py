"""A duty that consumes a topic in the group `operators`: at least once, from where the group stands.

What was read but not acknowledged when a process died is read again, by it or by another. A message that breaks its
handler is logged, counted and skipped: one bad message must not stop everything behind it. Only a Redis that does not
answer makes the consumer wait.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from google.protobuf.message import Message

from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.log.topics import Group, Received
from kernel.service.service import Loop
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("operator.consumer")
M = TypeVar("M", bound=Message)

BATCH = 200
WAIT_SECONDS = 1.0
_MAX_PAUSE = 10.0


class Consumer(Loop, Generic[M]):
    """Hands the messages of a group to `handle`, one by one in each partition's order."""

    def __init__(
        self, name: str, group: Group[M], handle: Callable[[Received[M]], Awaitable[None]], clock: Clock
    ) -> None:
        super().__init__(name)
        self._group = group
        self._handle = handle
        self._clock = clock

    async def run(self) -> None:
        """Consumes; what is not acknowledged when it is stopped is delivered again."""
        failures = 0
        while True:
            try:
                batch = await self._group.read(BATCH, WAIT_SECONDS)
                for received in batch:
                    await self._one(received)
                if batch:
                    await self._group.ack(batch)
                failures = 0
            except Exception as error:  # noqa: BLE001 - the loop survives everything; each failure is told
                failures += 1
                metrics.DUTY_FAILURES.labels(self.name).inc()
                _log.warn("consumer_failed", duty=self.name, error=str(error), count=failures)
                await self._clock.sleep(min(_MAX_PAUSE, 0.1 * 2 ** min(failures, 10)))

    async def _one(self, received: Received[M]) -> None:
        try:
            await self._handle(received)
        except FetchboxError:
            raise
        except Exception as error:  # noqa: BLE001 - a message that cannot be handled is told and left behind
            metrics.DUTY_FAILURES.labels(self.name).inc()
            _log.exception("message_skipped", error, duty=self.name, entry=received.id, partition=received.partition)
