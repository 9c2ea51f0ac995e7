"""The circuit breakers of a process.

The story of one breaker, for instance `host:example.org`:

- Closed: everybody is let through, and results are counted in a sliding window in Redis, that of the whole fleet.
- It opens when there are enough results and too many of them are failures. Nobody is let through for the cooldown;
  what is turned away waits outside the slots and uses no attempt.
- Half-open: one caller in the fleet is let through, the probe. Its success closes the breaker and forgets the window,
  its failure opens it anew; where it ends without either, or its process dies, the place is free for another. For half
  a cooldown the place is for fresh work alone: work that failed before may fail for a reason of its own.

Asking is on the hot path of every fetch. So a process keeps the short list of breakers that are not closed, looks now
and then whether it has changed, and asks Redis only where a cooldown is over. While Redis does not answer, nobody is
kept from working: a breaker is a courtesy.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Final

from fetchbox.config.v1 import config_pb2
from kernel.breakers.book import Book, BreakerStanding
from kernel.breakers.lines import BreakerLines
from kernel.breakers.memory import BreakerMemory
from kernel.breakers.probes import Probes
from kernel.breakers.reports import BreakerReports
from kernel.breakers.silences import Silences
from kernel.breakers.types import CLOSED, OPEN, Admission, BreakerState, BreakerTerms
from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.redis.clients import RedisClients
from kernel.tasks import ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

FRESH_SECONDS: Final = 1.0
"""How long the list of breakers that are not closed is believed: what another worker has found is seen by then.

It is read anew after half of that, while the old one is still believed; and never later than half a cooldown."""
_PATIENCE_SECONDS: Final = 1.0
"""How long anybody waits for an answer. Without one he is let through."""
_log = get_logger("breakers")


class Breakers:
    """All breakers, as one duty of a service; used without a start as well."""

    name = "breakers"

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.CircuitBreaker,
        clock: Clock,
        rng: random.Random | None = None,
        probe_seconds: float = 10.0,
        lines: BreakerLines | None = None,
    ) -> None:
        """`probe_seconds`: how long the place of a probe is kept after the death of its process.

        `lines` publish when breakers open and close, as this process is told.
        """
        terms = BreakerTerms.of(config)
        self._clock = clock
        self._fresh = min(FRESH_SECONDS, terms.cooldown / 2000)
        self._pause = self._fresh / 2
        """How long nobody here asks for a breaker that is being asked for, or probed."""
        self._book = Book(clients, terms, max(1, round(probe_seconds * 1000)))
        self._memory = BreakerMemory(terms.cooldown / 1000, rng or random.Random())  # noqa: S311 - spreads load, no secret
        self._reports = BreakerReports(self._book, clock, self._told)
        self._probes = Probes(self._book, clock, probe_seconds)
        self._lines = lines
        self._silences = Silences(self._book, clock)
        self._turn: bytes | None = None
        self._look_began = self._again_at = self._stale_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._silent = False

    async def start(self) -> None:
        """Nothing to begin: connects when it is first asked."""

    async def drain(self, grace: float) -> None:
        """Goes on until the stop."""

    async def stop(self) -> None:
        """Sends the last results and closes the connection; safe twice."""
        looking, self._looking = self._looking, None
        await ended(looking)
        await self._probes.stop()
        await self._reports.stop()
        if self._lines is not None:
            await self._lines.stop()
        self._book.close()

    def known(self, name: str) -> Admission | None:
        """The answer where no server has to be asked for it; None otherwise. Never lets a probe through."""
        now = self._clock.monotonic()
        if now >= self._again_at:
            self._look_soon()
            if now >= self._stale_at:
                return None
        return self._memory.known(name, now)

    async def all_closed(self) -> bool:
        """Whether every breaker of the fleet is closed; asks Redis only where the list of the others is old."""
        if self._clock.monotonic() >= self._again_at:
            self._look_soon()
        if self._clock.monotonic() >= self._stale_at:
            await self._looked()
        return self._memory.is_empty

    def standing(self, name: str) -> Admission:
        """What work gets that begins without asking, to be handed to `record`."""
        return self._memory.admission(name)

    async def admit(self, name: str, *, fresh: bool = True) -> Admission:
        """Whether work may be done now. Whoever is let through calls `record` or `release` with the answer.

        Work that is not `fresh` has failed before.
        """
        admission = self.known(name)
        if admission is not None:
            return admission
        now = await self._looked()
        admission = self._memory.known(name, now)
        if admission is not None:
            return admission
        precedence = 0.0 if fresh else self._memory.precedence(name, now)
        return Admission(allowed=False, retry_after=precedence) if precedence else await self._ask(name)

    async def _looked(self) -> float:
        """Waits for the list of breakers that are not closed, but not for long; the time then."""
        now = self._clock.monotonic()
        patience = self._look_began + _PATIENCE_SECONDS - now
        if self._looking is not None and not self._looking.done() and patience > 0:
            await asyncio.wait({self._looking}, timeout=patience)
            now = self._clock.monotonic()
        if now >= self._stale_at:  # no answer: the next ones do not wait for it
            self._stale_at = now + self._fresh
        return now

    def deferral(self, name: str, *, fresh: bool = True) -> float:
        """Seconds after which work that was turned away is to come back: one as the probe, the others spread out."""
        return self._memory.deferral(name, self._clock.monotonic(), fresh=fresh)

    def record(self, name: str, ok: bool, admission: Admission | None = None) -> None:
        """Takes a result; it is sent within 100 ms. That of a probe decides about the breaker."""
        if admission is not None and admission.probe:
            self._conclude(name, admission.probe, "close" if ok else "open")
        elif self._memory.counts(name, admission):
            self._reports.count(name, ok=ok)

    def record_silence(self, name: str, admission: Admission | None = None) -> None:
        """Takes the failure of something that has not answered at all."""
        if admission is not None and admission.probe:
            self._conclude(name, admission.probe, "silent")
        else:
            self.record(name, False, admission)

    async def silence(self, name: str) -> float:
        """Seconds since what a breaker stands for has answered to anybody; 0 while it is closed, or not known.

        Counted from when the breaker opened, by its probes. An answer is believed for a second.
        """
        return await self._silences.of(name)

    def release(self, name: str, admission: Admission) -> None:
        """The work has ended without telling anything of the breaker: given back, canceled, somebody else's fault."""
        if admission.probe:
            self._conclude(name, admission.probe, "free")

    async def list(self) -> Sequence[BreakerState]:
        """Breakers that are not closed, then those with failures in their window, each by name; at most 500.

        `UNAVAILABLE` where Redis does not answer.
        """
        found = await self.states(await self._book.names())
        telling = [state for state in found if state.state != CLOSED or state.failures]
        return sorted(telling, key=lambda state: (state.state == CLOSED, state.name))

    async def is_known(self, name: str) -> bool:
        """Whether a breaker has ever had anything to tell that is not forgotten. `UNAVAILABLE` as for `list`."""
        (state,) = await self.states([name])
        return state.state != CLOSED or state.samples > 0 or name in await self._book.names()

    async def states(self, names: Sequence[str]) -> Sequence[BreakerState]:
        """How these breakers stand, in this order. `UNAVAILABLE` where Redis does not answer."""
        return await self._book.states(names)

    async def counts(self) -> tuple[int, int]:
        """How many breakers of any kind are half-open, and how many open. `UNAVAILABLE` where Redis does not answer."""
        return await self._book.counts()

    async def reset(self, name: str) -> BreakerState:
        """Closes a breaker and forgets its window; how it stands then. `UNAVAILABLE` where Redis does not answer."""
        (standing,) = await self._book.tell([self._book.verdict(name, "", "close")])
        self._told(name, standing)
        return (await self.states([name]))[0]

    def _conclude(self, name: str, token: str, verdict: str) -> None:
        self._probes.end(name, token)
        self._reports.verdict(name, token, verdict)

    async def _ask(self, name: str) -> Admission:
        """Asks for the place of the probe; meanwhile the others here are turned away."""
        token = os.urandom(8).hex()
        self._memory.shut(name, self._clock.monotonic(), self._pause, opened=False)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                (standing,) = await self._book.tell([self._book.ask(name, token)])
        except asyncio.CancelledError:
            self._reports.verdict(name, token, "free")
            raise
        except (FetchboxError, TimeoutError) as error:
            self._reports.verdict(name, token, "free")
            self._tell_once(error)
            self._memory.close(name)
            self._turn = b""  # so that the list is read again when there is one
            return self._memory.admission(name)
        if standing.value:
            self._probes.begin(name, token)
            return Admission(allowed=True, probe=token)
        self._learn(name, standing)
        now = self._clock.monotonic()
        return self._memory.known(name, now) or Admission(allowed=False, retry_after=self._pause)

    def _told(self, name: str, standing: BreakerStanding) -> None:
        """What Redis says after a result or a verdict."""
        kind = name.partition(":")[0]
        if standing.value and standing.state == OPEN:
            _log.warn("breaker_opened", key=name)
            metrics.BREAKERS_OPENED.labels(kind).inc()
            if self._lines is not None:
                self._lines.opened(name)
        elif standing.value and standing.state == CLOSED:
            _log.info("breaker_closed", key=name, duration_ms=standing.value)
            metrics.BREAKER_OPEN_SECONDS.labels(kind).inc(standing.value / 1000)
            if self._lines is not None:
                self._lines.closed(name, standing.value)
        self._learn(name, standing)

    def _learn(self, name: str, standing: BreakerStanding) -> None:
        if standing.state == CLOSED:
            self._memory.close(name)
            self._silences.forget(name)
        elif standing.state == OPEN:
            self._memory.shut(name, self._clock.monotonic(), standing.wait, opened=True)
        else:
            wait = min(standing.wait, self._pause)
            self._memory.shut(name, self._clock.monotonic(), wait, opened=False)

    def _look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._look_began = self._clock.monotonic()
            self._looking = asyncio.create_task(self._look(), name="breakers.look")

    async def _look(self) -> None:
        """Reads which breakers are not closed, if that has changed. Without an answer the old list stands."""
        asked = self._look_began
        try:
            turn = await self._book.turn()
            if turn is None:  # none has ever opened there, or all data is lost
                self._memory.learn({}, self._clock.monotonic())
            elif turn != self._turn:
                self._memory.learn(await self._book.shut(), self._clock.monotonic())
            self._turn = turn
            self._silent = False
        except FetchboxError as error:
            self._tell_once(error)
            asked = self._clock.monotonic()
        self._again_at, self._stale_at = asked + self._pause, asked + self._fresh

    def _tell_once(self, error: Exception) -> None:
        if not self._silent:
            _log.warn("breakers_unknown", error=error)
        self._silent = True
