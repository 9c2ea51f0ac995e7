"""Deltas that repeat what is known: the whole text so far in each (DashScope), or once more at the end (RAGFlow)."""

from __future__ import annotations

from typing import Final

from worker_svc.tasks.text import Text

_BEFORE: Final = 3
"""Pieces that must have come before one that is the same as all of them counts as said again."""
_EVIDENCE: Final = 3
"""So many deltas in a row, each of which begins with the one before it, are no pieces."""
_SHORTEST: Final = 6
_FEWEST: Final = 3
"""So long a text, of so many different letters, is not said again by chance, as laughter and rulers are."""


class RepeatingDeltas:
    """Tells of each delta of a text what is new.

    The first ones are held as long as each begins with the whole one before it, and is longer: three of them in a row
    that are no laughter show that each holds the whole text so far. Any other one shows that they are pieces. One that
    is the same as all pieces before it is held, too: it repeats them where it is the last one, and is a piece, as a
    refrain is, where the text goes on.
    """

    def __init__(self, text: Text) -> None:
        """`text` is what is known; whoever asks adds to it what is new."""
        self._text = text
        self._number = 0
        self._held: list[str] = []
        self._again = 0
        """How often the whole text has come once more since it last grew."""
        self._cumulative = False

    def new_of(self, delta: str) -> str:
        """What is new; empty while it is held."""
        if not delta:
            return ""
        self._number += 1
        if self._cumulative:
            return self._rest(delta)
        if self._is_undecided and self._goes_on(delta):
            self._held.append(delta)
            return self._decided() if len(self._held) == _EVIDENCE else ""
        held = self.end()
        return held + delta if held else self._piece(delta)

    @property
    def left_out(self) -> bool:
        """Whether some of what came was taken for a repetition, and left out."""
        return self._cumulative or self._again > 0

    @property
    def _is_undecided(self) -> bool:
        """Whether all deltas but the first are held, and whoever sent this one may have meant the whole so far."""
        return self._number == len(self._held) + 2

    def end(self) -> str:
        """What is held, and no repetition. Where more comes all the same, it may show that what seemed one is none."""
        held, self._held = "".join(self._held), []
        return held

    def settle(self) -> None:
        """A snapshot follows, which says what has been repeated."""
        self._again = 0

    def _decided(self) -> str:
        last = self._held[-1]
        self._cumulative = is_telling(last)
        held = self.end()
        return self._rest(last) if self._cumulative else held

    def _rest(self, delta: str) -> str:
        if self._goes_over(delta):
            return delta[self._text.length :]
        return "" if self._text.whole().strip() == delta.strip() else delta

    def _piece(self, delta: str) -> str:
        if self._number > _BEFORE and self._repeats(delta):
            self._again += 1
            return ""
        again, self._again = self._again, 0
        return self._text.whole() * again + delta

    def _repeats(self, delta: str) -> bool:
        return len(delta) == self._text.length and is_telling(delta) and self._goes_over(delta)

    def _goes_on(self, delta: str) -> bool:
        before = self._held[-1] if self._held else self._text.whole()
        return len(delta) > len(before) and delta.startswith(before)

    def _goes_over(self, delta: str) -> bool:
        return len(delta) >= self._text.length and delta.startswith(self._text.whole())


def is_telling(text: str) -> bool:
    """Whether a text is so long, and of so many letters, that it is not said again by chance."""
    return len(text) >= _SHORTEST and len(set(text)) >= _FEWEST
