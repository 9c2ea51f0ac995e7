"""Whether a cost grows faster than the size of what it is for.

The cost is CPU time of this thread, the least of a few tries. When the size doubles, a linear cost doubles and a
quadratic one is four times as much; over three doublings that is 8 against 64, and the bound lies between them with
room for noise. Collections of garbage go over all that a process has, so they are left out.
"""

import contextlib
import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
DOUBLINGS = 3
_BOUND = 28
"""The most that the cost may grow over the doublings: a line makes 8 of it, a square 64."""
_FLOOR = 2e-3
"""Seconds of CPU below which a cost is noise."""
_TRIES = 3


def excess(
    make: Callable[[int], T], read: Callable[[T], object], size: int, refusals: tuple[type[Exception], ...] = ()
) -> str:
    """What a reader costs where that grows too fast; empty where it does not. A refusal is as good as an answer.

    What is made of `size` is read a few times, and what is made of eight times the size until one try is in bounds.
    """
    small, large = make(size), make(size << DOUBLINGS)
    gc.disable()
    try:
        first = min(_seconds(read, small, refusals) for _ in range(_TRIES))
        last = 0.0
        for _ in range(_TRIES):
            last = _seconds(read, large, refusals)
            if last <= _BOUND * max(first, _FLOOR):
                return ""
    finally:
        gc.enable()
    return f"{first:.4f} s, and {last:.4f} s for {1 << DOUBLINGS} times as much"


def _seconds(read: Callable[[T], object], given: T, refusals: tuple[type[Exception], ...]) -> float:
    began = time.thread_time()
    with contextlib.suppress(*refusals):
        read(given)
    return time.thread_time() - began
