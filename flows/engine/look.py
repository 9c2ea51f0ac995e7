"""One look of an engine at one run: claimed, read, decided of, done, and let rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from flows.engine.decision import Decision
from flows.engine.due import Rest
from flows.engine.memory import Remembered
from flows.model.order import Order
from flows.model.state import over
from flows.model.types import FlowState
from kernel.ledger.record import JobRecord
from kernel.redis import keys
from kernel.redis.keys import RunKey
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.engine")

_LONGEST_PAUSE_MS: Final = 60_000

_T = TypeVar("_T")


@dataclass(slots=True)
class Look:
    """What is known of the run so far. `over`: nothing more is to be done in this look."""

    key: RunKey
    """The run."""
    lease: bytes
    memory: Remembered
    now_ms: int
    """When it was claimed, by the clock of Redis."""
    found: Order | None = None
    """Its order, as it was read; None where there is none (any more)."""
    decision: Decision | None = None
    revision: int = 0
    """After what was published."""
    ended_jobs: list[tuple[str, JobRecord]] = field(default_factory=list)
    """By stepRunId, fetch jobs whose results are to be read before anything can be decided."""
    over: bool = False
    aside: bool = False
    """It waits for something beside the others, or has, and is not concluded with those that it began with."""
    next_ms: int | None = None
    """When to look again; None: when it is signalled."""

    @property
    def state(self) -> FlowState:
        """The run."""
        return self.memory.state

    @property
    def order(self) -> Order:
        """The order of a run that is there."""
        return _known(self.found)

    @property
    def made(self) -> Decision:
        """What was decided."""
        return _known(self.decision)

    def renew(self, lease: bytes, now_ms: int) -> None:
        """Begins anew with what is remembered."""
        self.lease, self.now_ms = lease, now_ms
        self.found, self.decision, self.ended_jobs = None, None, []
        self.over, self.aside, self.next_ms = False, False, None

    def is_held(self, seconds: float) -> bool:
        """Whether the lease does not end within so long from when this look began."""
        return self.now_ms + seconds * 1000 <= float(self.lease)

    def end(self, next_ms: int | None) -> None:
        """Nothing more is to be done now."""
        self.over, self.next_ms = True, next_ms

    def again(self) -> None:
        """The run has changed: looks again at once."""
        self.end(self.now_ms)

    def sooner(self, ms: int) -> None:
        """Looks again then at the latest."""
        self.next_ms = ms if self.next_ms is None else min(self.next_ms, ms)

    def fault(self, error: Exception, *, ours: bool = True) -> None:
        """Something does not go on as it should: it is tried again, ever more seldom, and others are not held up.

        `ours`: trying again alone will hardly cure it, so somebody is to be told.
        """
        self.memory.faults += 1
        pause = min(_LONGEST_PAUSE_MS, 500 * 2 ** min(self.memory.faults, 10))
        if ours:
            metrics.FLOW_FAULTS.inc()
            _log.exception("flow_not_advanced", error, **self._named(), failed=self.memory.faults)
        else:
            _log.warn("flow_put_off", **self._named(), failed=self.memory.faults, error=error)
        self.end(self.now_ms + pause)

    def _named(self) -> dict[str, str]:
        tenant, flow_id = keys.run_parts(self.key)
        return {"flow_id": flow_id, "tenant": tenant}

    def rest(self) -> Rest:
        """What is to be told to the set of due runs. What was only good for this look is forgotten."""
        memory = self.memory
        memory.objects = {}
        if memory.jobs:
            open_ids = {step.run_id for step in memory.state.steps.values() if not over(step)}
            memory.jobs = {run_id: facts for run_id, facts in memory.jobs.items() if run_id in open_ids}
        return Rest(self.key, self.lease, self.next_ms)


def _known(value: _T | None) -> _T:
    if value is None:
        raise RuntimeError("the look has not come that far")
    return value
