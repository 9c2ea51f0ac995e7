"""For how long what an open breaker stands for has not answered, as it is asked when work is turned away."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kernel.breakers.book import Book
from kernel.clock import Clock
from kernel.errors import FetchboxError

_BELIEVED_SECONDS: Final = 1.0
"""Many are turned away at once: they share an answer."""
_MOST: Final = 1000


class Silences:
    """What Redis said of the silence of each breaker, and when."""

    def __init__(self, book: Book, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def of(self, name: str) -> float:
        """Seconds; 0 for a closed breaker and while Redis does not answer."""
        now = self._clock.monotonic()
        asked, silence = self._known.get(name, (float("-inf"), 0.0))
        if now - asked < _BELIEVED_SECONDS:
            return silence
        try:
            silence = await self._book.silence(name)
        except FetchboxError:
            silence = 0.0
        self._known[name] = now, silence
        self._known.move_to_end(name)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return silence

    def forget(self, name: str) -> None:
        """The breaker has closed."""
        self._known.pop(name, None)
