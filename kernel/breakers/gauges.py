"""What Prometheus is shown of the breakers: each queue and task by name, all others only by their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernel.breakers import names
from kernel.breakers.breakers import Breakers
from kernel.breakers.types import CLOSED, HALF_OPEN, OPEN, STATES
from kernel.telemetry import metrics


class BreakerGauges:
    """Reads how the breakers of the fleet stand. The names come from the configuration, so that they are few."""

    def __init__(self, breakers: Breakers, queues: Iterable[str], tasks: Mapping[str, str]) -> None:
        """`queues` are Redis lists, `tasks` the circuit by task, of which several may share one.

        The label of a task is `task:{task}`.
        """
        self._breakers = breakers
        self._labels = {queue: names.of_queue(queue) for queue in queues}
        self._labels |= {f"task:{task}": circuit for task, circuit in tasks.items()}

    async def run(self) -> None:
        """Sets the gauges. `UNAVAILABLE` where Redis does not answer."""
        circuits = list(dict.fromkeys(self._labels.values()))
        found = {state.name: state.state for state in await self._breakers.states(circuits)}
        for label, circuit in self._labels.items():
            metrics.BREAKER_STATE.labels(label).set(STATES.index(found[circuit]))
        known = [state for state in found.values() if state != CLOSED]
        half_open, is_open = await self._breakers.counts()
        metrics.HOST_BREAKERS.labels(HALF_OPEN).set(max(0, half_open - known.count(HALF_OPEN)))
        metrics.HOST_BREAKERS.labels(OPEN).set(max(0, is_open - known.count(OPEN)))
