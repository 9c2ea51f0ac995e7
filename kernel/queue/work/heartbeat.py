"""The worker's lease, renewed by a thread and a connection of its own, so that a busy event loop keeps it.

The lease counts from when its renewal was *sent*, less a margin: by the time that anybody may take our tasks, we
have stopped to believe that they are ours. Once it has lapsed, nothing is renewed until the lane has given up
everything it held (`rejoin`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from redis import Redis
from redis.exceptions import RedisError

from kernel.redis import keys, scripts

Beat = Callable[[Redis, bool], bool]
"""Begins (True) or renews (False) a lease, called from a thread; False where a renewal comes too late."""

_MARGIN = 0.1
"""The part of the lease that we do without."""


def stream_beat(lanes: Sequence[str], worker: str, ttl: float) -> Beat:
    """The lease of a worker in every partition of the streams."""
    leases, ttl_ms = [keys.lease(lane) for lane in lanes], int(ttl * 1000)

    def beat(client: Redis, first: bool) -> bool:
        pipeline = client.pipeline(transaction=False)
        for lease in leases:
            pipeline.eval(scripts.BEAT.source, 1, lease, worker, ttl_ms, int(first))
        return all(pipeline.execute())

    return beat


class Heartbeat:
    """The lease of one worker."""

    def __init__(self, client: Redis, beat: Beat, name: str, ttl: float, tell: Callable[[bool], None]) -> None:
        """`tell` is called from the thread: False when the lease has lapsed, True once there is a new one."""
        self._client = client
        self._send = beat
        self._ttl = ttl
        self._tell = tell
        self._until = 0.0
        self._wake = threading.Condition()
        self._stopping = False
        self._fenced = False
        self._void = False
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{name}", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the lease is ours for certain."""
        return not self._fenced and time.monotonic() < self._until

    def start(self) -> None:
        """Begins the lease before it returns; raises what Redis raises. Blocks: call it off the event loop."""
        self._beat(first=True)
        self._thread.start()

    def rejoin(self) -> None:
        """Permits a new lease after a lapse: nothing claimed under the old one is held any more."""
        with self._wake:
            self._void = True
            self._wake.notify()

    def stop(self) -> None:
        """Ends the renewals. Safe twice; blocks for as long as one renewal may."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def _run(self) -> None:
        pause = self._ttl / 3
        while self._sleep(pause):
            if not self._fenced:
                pause = self._renew()
            if self._fenced:
                pause = self._begin_again()

    def _sleep(self, seconds: float) -> bool:
        with self._wake:
            if not self._stopping and not (self._fenced and self._void):
                self._wake.wait(seconds)
            return not self._stopping

    def _renew(self) -> float:
        """One renewal; seconds until the next."""
        try:
            held = self._beat(first=False)
        except (RedisError, OSError):
            held = time.monotonic() < self._until
            if held:
                return min(0.5, self._ttl / 20)
        if not held:
            self._fenced, self._void = True, False
            self._tell(False)
        return self._ttl / 3

    def _begin_again(self) -> float:
        if not self._void:
            return self._ttl / 3
        try:
            self._beat(first=True)
        except (RedisError, OSError):
            self._wake_later()
            return min(0.5, self._ttl / 20)
        self._fenced = self._void = False
        self._tell(True)
        return self._ttl / 3

    def _wake_later(self) -> None:
        """Keeps `_sleep` from spinning while Redis is away: waits here, with nothing to renew."""
        with self._wake:
            if not self._stopping:
                self._wake.wait(min(0.5, self._ttl / 20))

    def _beat(self, *, first: bool) -> bool:
        sent = time.monotonic()
        held = self._send(self._client, first)
        if held:
            self._until = sent + self._ttl * (1 - _MARGIN)
        return held


def tell(loop: asyncio.AbstractEventLoop, told: Callable[[bool], None], alive: bool) -> None:
    """Hands news from the heartbeat's thread to the event loop, unless that is closed already."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(told, alive)
