"""How long a call of ours waits for a dependency that hangs, so that whoever called hears why and in time.

Work of its own (a fetch, a duty) has patience: the object store is tried again for minutes. An RPC has none, since its
client waits: each wait for the object store within one ends after `LONGEST` seconds, or earlier where the client's own
deadline is near, and the RPC answers `UNAVAILABLE`. That is well below the 90 s for which a gateway waits for an RPC.
Redis needs nothing of this: its commands end after a few read timeouts of seconds.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

LONGEST: Final = 15.0
"""Seconds that an RPC waits for one call of the object store, its tries included."""
_SHARE: Final = 0.8
"""How much of the time that a client has left one wait may take: the rest is for the answer."""
_SHORTEST: Final = 0.2

_seconds: ContextVar[float | None] = ContextVar("rpc_wait", default=None)


def begin(remaining: float | None) -> None:
    """An RPC begins in this context. Its client waits for another `remaining` seconds; None: as long as it takes."""
    _seconds.set(LONGEST if remaining is None else max(_SHORTEST, min(LONGEST, remaining * _SHARE)))


def seconds() -> float | None:
    """The longest wait for one call of a dependency in this context; None for work that nobody waits for."""
    return _seconds.get()
