"""When a segment is due. Nothing is held back in memory: until then entries just stay on their stream."""

from __future__ import annotations

from typing import Final

from fetchbox.config.v1.config_pb2 import Exporter
from kernel.durations import millis
from kernel.log.offsets import parse_id
from pipeline.export.judging import State, is_doubtful
from pipeline.export.source import SourceLook

_NOBODY: Final = ("", 0)


class Roll:
    """Decides for one source."""

    def __init__(self, limits: Exporter) -> None:
        self._max_age = millis(limits.max_age)
        self._max_rows, self._max_bytes = limits.max_rows, limits.max_bytes
        self._waiting = _NOBODY
        """The oldest entry of the last look, and when it was first seen to be that."""

    def is_due(self, state: State, look: SourceLook) -> bool:
        """Whether there are enough entries, or one has waited for long enough, or the past is in doubt."""
        if is_doubtful(state, look):
            return True
        if not look.oldest:
            self._waiting = _NOBODY
            return False
        if look.oldest != self._waiting[0]:
            self._waiting = (look.oldest, look.now_ms)
        return self._is_old(look) or self._is_full(state, look)

    def _is_old(self, look: SourceLook) -> bool:
        # The time of an id may lie in the future, where the clock of Redis was set back.
        since = min(parse_id(look.oldest)[0], self._waiting[1])
        return look.now_ms - since >= self._max_age

    def _is_full(self, state: State, look: SourceLook) -> bool:
        count = 0 if state.added is None else look.added - state.added
        return count >= self._max_rows or count * state.mean >= self._max_bytes
