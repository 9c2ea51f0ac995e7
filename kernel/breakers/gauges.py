"""What Prometheus is shown of the breakers: each queue and task by name, hosts only by their number."""

from __future__ import annotations

from collections.abc import Iterable

from kernel.breakers.breakers import Breakers
from kernel.breakers.types import CLOSED, HALF_OPEN, OPEN, STATES
from kernel.telemetry import metrics


class BreakerGauges:
    """Reads how the breakers of the fleet stand. The names come from the configuration, so that they are few."""

    def __init__(self, breakers: Breakers, queues: Iterable[str], tasks: Iterable[str]) -> None:
        """`queues` are Redis lists, `tasks` those of seed 004; the label of a task is `task:{task}`."""
        self._breakers = breakers
        self._labels = {f"queue:{queue}": queue for queue in queues} | {
            f"task:{task}": f"task:{task}" for task in tasks
        }

    async def run(self) -> None:
        """Sets the gauges. `UNAVAILABLE` where Redis does not answer."""
        others = dict.fromkeys((HALF_OPEN, OPEN), 0)
        for state in await self._breakers.states(list(self._labels)):
            metrics.BREAKER_STATE.labels(self._labels[state.name]).set(STATES.index(state.state))
            if state.state != CLOSED:
                others[state.state] += 1
        half_open, is_open = await self._breakers.counts()
        metrics.HOST_BREAKERS.labels(HALF_OPEN).set(max(0, half_open - others[HALF_OPEN]))
        metrics.HOST_BREAKERS.labels(OPEN).set(max(0, is_open - others[OPEN]))
