"""Deadlines that stand still while a call waits for a child: a cold start is no work of a handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Resume = Callable[[], None]
STANDS: Final[ContextVar[Callable[[], Resume] | None]] = ContextVar("STANDS", default=None)
"""Stops the deadline of what runs in this context; what it returns lets it go on."""


@contextmanager
def standing() -> Iterator[None]:
    """The deadline of this context stands still within."""
    stop = STANDS.get()
    resume = stop() if stop is not None else None
    try:
        yield
    finally:
        if resume is not None:
            resume()
