"""Circuit breakers: work on what keeps failing is put off, by the whole fleet. `Breakers` is the door."""

from kernel.breakers.breakers import Breakers
from kernel.breakers.gauges import BreakerGauges
from kernel.breakers.lines import BreakerLines
from kernel.breakers.results import result_of
from kernel.breakers.types import CLOSED, HALF_OPEN, OPEN, STATES, Admission, BreakerState

__all__ = [
    "CLOSED",
    "HALF_OPEN",
    "OPEN",
    "STATES",
    "Admission",
    "BreakerGauges",
    "BreakerLines",
    "BreakerState",
    "Breakers",
    "result_of",
]
