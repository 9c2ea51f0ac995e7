"""What the users of breakers see of them, and the terms that the configuration sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fetchbox.config.v1 import config_pb2
from kernel.durations import seconds

CLOSED: Final = "closed"
HALF_OPEN: Final = "half_open"
OPEN: Final = "open"
STATES: Final = (CLOSED, HALF_OPEN, OPEN)
"""In the order of the gauge `circuit_breaker_state`: 0, 1, 2."""

_BUCKETS: Final = 10
LONGEST_SPREAD: Final = 10
"""Cooldowns over which those that an open breaker turned away come back, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """The answer of a breaker.

    Whoever was let through hands it back with the result: what began before the breaker last closed counts for nothing.
    """

    allowed: bool
    retry_after: float = 0.0
    """Seconds until it is worth asking again; 0 where it is allowed."""
    probe: str = ""
    """Not empty for the one caller whose result decides about a half-open breaker."""


@dataclass(frozen=True, slots=True)
class BreakerState:
    """How a breaker stands, fleet-wide."""

    name: str
    """As `kernel.breakers.names` makes it."""
    state: str
    """`closed`, `half_open` or `open`."""
    samples: int
    """Results in the window."""
    failures: int
    """Failures among them."""
    retry_after: float
    """Seconds until an open one lets a probe through, or until the place of a running probe is free at the latest."""


@dataclass(frozen=True, slots=True)
class BreakerTerms:
    """`circuit_breaker` of the configuration. Times are in ms."""

    threshold: float
    min_samples: int
    buckets: int
    bucket: int
    cooldown: int

    @classmethod
    def of(cls, config: config_pb2.CircuitBreaker) -> BreakerTerms:
        """The terms of a configuration."""
        window = max(1, round(seconds(config.window) * 1000))
        buckets = min(_BUCKETS, window)
        cooldown = max(1, round(seconds(config.cooldown_period) * 1000))
        return cls(config.failure_threshold, config.min_samples, buckets, window // buckets, cooldown)

    @property
    def keep(self) -> int:
        """How long a breaker that is not closed is remembered while nobody asks for it, in ms.

        By then everything that it turned away has come back, and a window has passed.
        """
        return self.cooldown * (LONGEST_SPREAD + 1) + self.bucket * self.buckets
