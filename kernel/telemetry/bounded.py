"""Metrics whose labels have at most 50 values each (seed 002, Metrics): what comes beyond them counts as `other`.

Values that are known beforehand (job types, queues) are held against the configuration by `kernel.telemetry.metrics`
already. This is the cap behind that for every metric alike: the first values that come have a series of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, Self

from prometheus_client import Counter, Gauge, Histogram

OTHER: Final = "other"
LIMIT: Final = 50
"""Values of one label of one metric, `other` among them."""

_lock = threading.Lock()


class _Bounded:
    """Puts `other` in place of a label's value once the label has enough of them."""

    _labelnames: Sequence[str]
    _admitted: tuple[set[str], ...] | None = None

    def labels(self, *values: Any, **named: Any) -> Self:
        """The series of these label values."""
        if named and not values and named.keys() == set(self._labelnames):
            values, named = tuple(named[name] for name in self._labelnames), {}
        if self._admitted is None:
            self._admitted = tuple(set[str]() for _ in self._labelnames)
        bounded = (self._bound(seen, str(value)) for seen, value in zip(self._admitted, values, strict=False))
        if len(values) == len(self._labelnames):
            values = tuple(bounded)
        series: Self = super().labels(*values, **named)  # type: ignore[misc]  # of the metric beside it
        return series

    @staticmethod
    def _bound(seen: set[str], value: str) -> str:
        if value in seen or value == OTHER:
            return value
        with _lock:
            if len(seen) < LIMIT - 1:
                seen.add(value)
        return value if value in seen else OTHER


class BoundedCounter(_Bounded, Counter):
    """A counter."""


class BoundedGauge(_Bounded, Gauge):
    """A gauge."""


class BoundedHistogram(_Bounded, Histogram):
    """A histogram."""
