"""When a worker stops to be busy so that a suspect can run alone."""

from kernel.clock import Clock


class Solo:
    """Paces the solo runs: a suspect never starves, and neither does the rest.

    A round begins when suspects are seen. The worker then claims nothing else until it is empty, for a patience that
    doubles with each round that failed for long-running neighbours; suspects are then run one by one for the length
    of one round, and normal work goes on for as long.
    """

    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock = clock
        self._interval = interval
        self._patience = interval
        self._until = 0.0
        self._rest_until = 0.0
        self._served = False

    def wanted(self, suspects: int, *, busy: bool) -> bool:
        """Whether nothing but a suspect may be claimed now."""
        now = self._clock.monotonic()
        if suspects == 0 or now < self._rest_until:
            return False
        if self._until == 0.0:
            self._until, self._served = now + self._patience, False
        if now >= self._until:
            if busy and self._served:
                return True  # the suspect itself still runs, and it runs alone
            self._end(now)
            return False
        if not busy:
            self._served = True
            self._patience = self._interval
        return True

    def nothing(self) -> None:
        """No suspect was to be had."""
        self._end(self._clock.monotonic())

    def _end(self, now: float) -> None:
        if not self._served:
            self._patience = min(self._patience * 2, 64 * self._interval)
        self._until, self._rest_until = 0.0, now + self._interval
