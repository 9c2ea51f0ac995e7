"""Metrics whose labels have at most 50 values each: what comes beyond them counts as `other`.

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
    _known: dict[tuple[Any, ...], Any] | None = None
    """The series of values that have one of their own: finding them here saves the lock of the metric."""
    _admitted: tuple[set[str], ...] = ()

    def labels(self, *values: Any, **named: Any) -> Self:
        """The series of these label values."""
        if named and not values and named.keys() == set(self._labelnames):
            values, named = tuple([named[name] for name in self._labelnames]), {}
        if self._known is None:
            self._known, self._admitted = {}, tuple(set[str]() for _ in self._labelnames)
        series: Self | None = self._known.get(values)
        if series is not None and not named:
            return series
        return self._first(self._known, values, named)

    def _first(self, known: dict[tuple[Any, ...], Any], values: tuple[Any, ...], named: dict[str, Any]) -> Self:
        bounded = values
        if len(values) == len(self._labelnames):
            bounded = tuple(_bound(seen, str(value)) for seen, value in zip(self._admitted, values, strict=True))
        series: Self = super().labels(*bounded, **named)  # type: ignore[misc]  # of the metric beside it
        if bounded == values:
            known[values] = series
        return series

    def remove(self, *values: Any, **named: Any) -> None:
        """Ends a series; the next one of its values begins anew."""
        super().remove(*values, **named)  # type: ignore[misc]  # of the metric beside it
        if self._known is not None:
            self._known.clear()

    def clear(self) -> None:
        """Ends every series."""
        super().clear()  # type: ignore[misc]  # of the metric beside it
        self._known = None


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
