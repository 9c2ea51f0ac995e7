"""Events that come again under their ids, as after a reconnect of a proxy: each counts once."""

from __future__ import annotations

from typing import Final

from worker_svc.tasks.sse import SseEvent

_MOST: Final = 100_000
"""So many ids are remembered."""


class EventIds:
    """Remembers which event had which id, as long as no id stands for two different ones.

    Only an id of an event's own counts. Where all have the same one, and where only the newest one comes again, that
    tells nothing: a text may say a word twice.
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] | None = {}
        self._newest = ""
        self._again = False
        """Whether an event before the newest has just come again; that one is then the next to do so."""

    def is_repeated(self, event: SseEvent) -> bool:
        """Whether this very event has come before under its id, and others under other ids since."""
        if self._marks is None or not event.own_id or not event.data:
            return False
        mark = hash((event.type, event.data))
        known = self._marks.get(event.own_id)
        if known == mark:
            self._again = self._again or event.own_id != self._newest
            return self._again
        self._newest, self._again = event.own_id, False
        self._marks[event.own_id] = mark
        if known is not None or len(self._marks) > _MOST:
            self._marks = None
        return False
