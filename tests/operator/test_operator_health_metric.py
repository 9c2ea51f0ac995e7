"""The health of the platform as a metric, which the operator keeps up to date by itself."""

from collections.abc import Sequence

import pytest

from kernel.clock import SystemClock
from kernel.errors import unavailable
from kernel.telemetry import metrics
from operator_svc.health import Check, Health


def _shown(component: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("fetchbox_component_health", {"component": component})


@pytest.mark.parametrize(
    ("problems", "critical", "number"),
    [((), True, 0), (("slow",), True, 1), (None, True, 2), (None, False, 1)],
)
async def test_a_report_is_a_metric_too(problems: Sequence[str] | None, critical: bool, number: int) -> None:
    async def probe() -> Sequence[str]:
        if problems is None:
            raise unavailable("it is gone")
        return problems

    await Health([Check("thing", probe, critical=critical)], SystemClock()).report()
    assert _shown("thing") == number
