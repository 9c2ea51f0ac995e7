"""GetHealth: one check for each component, each with a time limit of its own.

Redis (`ledger`, `streams`) and the object store (`storage`) are critical; all others only degrade. The report is made
for each call, so it is true while servers go down and come back; proxies alone are remembered for a moment, since
operators ask often and each question costs a connection to every proxy.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fetchbox.operator.v1.job_pb2 import ComponentHealth
from fetchbox.operator.v1.operator_service_pb2 import HealthReport
from kernel.clock import Clock
from kernel.errors import FetchboxError, unavailable
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("operator.health")

OK = "ok"
DEGRADED = "degraded"
UNHEALTHY = "unhealthy"
_NUMBERS = {OK: 0, DEGRADED: 1, UNHEALTHY: 2}
"""As the metric shows them."""
LIMIT_SECONDS = 2.0
"""The longest that one check may take."""


@dataclass(frozen=True, slots=True)
class Check:
    """A component: `probe` returns what degrades it, for people, and raises when it does not work at all."""

    name: str
    probe: Callable[[], Awaitable[Sequence[str]]]
    critical: bool = True


class Health:
    """All checks of the process."""

    def __init__(self, checks: Sequence[Check], clock: Clock, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._checks = tuple(checks)
        self._clock = clock
        self._limit = limit_seconds

    async def report(self) -> HealthReport:
        """The report of now, all checks at the same time."""
        components = await asyncio.gather(*(self._run(check) for check in self._checks))
        return HealthReport(status=overall(components), components=components)

    async def require(self) -> HealthReport:
        """The report; raises `UNAVAILABLE` with it as a detail when a critical component is unhealthy."""
        report = await self.report()
        if report.status != UNHEALTHY:
            return report
        broken = [f"{part.name}: {part.message}" for part in report.components if _breaks(part)]
        error = unavailable(f"FetchBox is unhealthy. {'; '.join(broken)}")
        error.details = (report,)
        raise error

    async def _run(self, check: Check) -> ComponentHealth:
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._limit):
                problems = await check.probe()
            status, message = (DEGRADED if problems else OK), "; ".join(problems)
        except TimeoutError:
            status, message = UNHEALTHY, f"no answer within {self._limit:g} s"
        except FetchboxError as error:
            status, message = UNHEALTHY, error.message
        except Exception as error:  # noqa: BLE001 - a report has to say that a check failed, whatever the reason
            _log.exception("health_check_failed", error, step=check.name)
            status, message = UNHEALTHY, f"the check failed: {type(error).__name__}"
        if status == UNHEALTHY and not check.critical:
            status = DEGRADED
        metrics.COMPONENT_HEALTH.labels(check.name).set(_NUMBERS[status])
        return ComponentHealth(
            name=check.name,
            status=status,
            critical=check.critical,
            message=message,
            latency_ms=(self._clock.monotonic() - started) * 1000,
        )


def overall(components: Sequence[ComponentHealth]) -> str:
    """`unhealthy` for a critical component that is, `degraded` for anything else that is not ok."""
    if any(_breaks(part) for part in components):
        return UNHEALTHY
    return OK if all(part.status == OK for part in components) else DEGRADED


def _breaks(part: ComponentHealth) -> bool:
    return part.critical and part.status == UNHEALTHY
