"""What one process knows of the breakers that are not closed, and how long those that are turned away wait."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from kernel.breakers.types import LONGEST_SPREAD, Admission

_ALLOWED: Final = Admission(allowed=True)
_MOST_REOPENED: Final = 10_000


class _Shut:
    """A breaker that is not closed."""

    __slots__ = ("ends", "is_first", "is_first_tried", "since", "until")

    def __init__(self, since: float, until: float) -> None:
        self.since = since
        self.ends = until
        """When its cooldown ends."""
        self.until = until
        """Until then nobody here asks for it."""
        self.is_first = self.is_first_tried = True
        """No fresh work, and no work that failed before, has been turned away here since it opened."""


class BreakerMemory:
    """All times are monotonic seconds, given by the caller."""

    def __init__(self, cooldown: float, rng: random.Random) -> None:
        """`cooldown` in seconds."""
        self._cooldown = cooldown
        self._grace = cooldown / 2
        """How long after a cooldown work that failed before leaves the place of the probe to fresh work."""
        self._rng = rng
        self._shut: dict[str, _Shut] = {}
        self._closed_again: OrderedDict[str, Admission] = OrderedDict()

    def admission(self, name: str) -> Admission:
        """What everybody gets who is let through a closed breaker; another one after each time that it has closed."""
        return self._closed_again.get(name, _ALLOWED)

    @property
    def is_empty(self) -> bool:
        """Whether every breaker is closed, as far as is known."""
        return not self._shut

    def precedence(self, name: str, now: float) -> float:
        """Seconds for which the place of the probe is still kept for fresh work, once the cooldown is over."""
        shut = self._shut.get(name)
        return 0.0 if shut is None else max(0.0, shut.ends + self._grace - now)

    def known(self, name: str, now: float) -> Admission | None:
        """The answer, if it is known here; None where Redis has to be asked: the cooldown is over."""
        shut = self._shut.get(name)
        if shut is None:
            return self._closed_again.get(name, _ALLOWED)
        return Admission(allowed=False, retry_after=shut.until - now) if now < shut.until else None

    def counts(self, name: str, admission: Admission | None) -> bool:
        """Whether a result says something of the breaker as it is: it is closed, and was so when the work began."""
        return name not in self._shut and (admission is None or admission is self.admission(name))

    def close(self, name: str) -> None:
        """It is closed."""
        if self._shut.pop(name, None) is None:
            return
        self._closed_again[name] = Admission(allowed=True)
        self._closed_again.move_to_end(name)
        if len(self._closed_again) > _MOST_REOPENED:
            self._closed_again.popitem(last=False)

    def shut(self, name: str, now: float, wait: float, *, opened: bool) -> None:
        """It is not closed, and nobody here asks for it for `wait` seconds. `opened`: its cooldown lasts so long."""
        until = now + wait
        shut = self._shut.get(name)
        if shut is None:
            self._shut[name] = _Shut(now, until)
            return
        shut.until = until
        if opened:
            # The same cooldown as told a little later, or the one that follows a probe's failure?
            if until > shut.ends + self._cooldown / 2:
                shut.is_first = shut.is_first_tried = True
            shut.ends = until

    def learn(self, waits: Mapping[str, float], now: float) -> None:
        """All that are not closed, and the seconds that their cooldowns still last."""
        for name in [name for name in self._shut if name not in waits]:
            self.close(name)
        for name, wait in waits.items():
            if wait > 0 or name not in self._shut:
                self.shut(name, now, wait, opened=wait > 0)

    def deferral(self, name: str, now: float, *, fresh: bool = True) -> float:
        """Seconds after which work that was turned away comes back.

        The first one comes when the cooldown is over, to be the probe; work that failed before comes later, as it may
        fail for a reason of its own. The others come each at a time of its own, so that they are no herd: spread over
        as long as the breaker has been shut already.
        """
        shut = self._shut.get(name)
        if shut is None:
            return self._rng.uniform(0, self._cooldown / 2)
        wait = max(0.0, shut.until - now)
        if not fresh:
            wait = max(wait, shut.ends + self._grace - now)
        if shut.is_first if fresh else shut.is_first_tried:
            if fresh:
                shut.is_first = False
            else:
                shut.is_first_tried = False
            return wait
        spread = min(max(self._cooldown / 2, now - shut.since), LONGEST_SPREAD * self._cooldown)
        return wait + self._rng.uniform(0, spread)
