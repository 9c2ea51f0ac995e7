"""Events that come again under their ids, as after a reconnect of a proxy: each counts once."""

from __future__ import annotations

from typing import Final

from worker_svc.tasks.sse import SseEvent

_MOST: Final = 100_000
"""So many ids are remembered."""


class EventIds:
    """Remembers which event had which id, as long as no id stands for two different ones."""

    def __init__(self) -> None:
        self._marks: dict[str, int] | None = {}

    def is_repeated(self, event: SseEvent) -> bool:
        """Whether this very event has come before under its id."""
        if self._marks is None or not event.last_id or not event.data:
            return False
        mark = hash((event.type, event.data))
        known = self._marks.get(event.last_id)
        if known == mark:
            return True
        self._marks[event.last_id] = mark
        if known is not None or len(self._marks) > _MOST:
            self._marks = None
        return False
