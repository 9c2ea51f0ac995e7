"""Server-Sent Events, read as the WHATWG's HTML standard says (section 9.2.6): bytes in any pieces become events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worker_svc.tasks.lines import Lines, TooLongError

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `type` is `message` where the stream names none; `last_id` is the id that holds by now."""

    type: str
    data: str
    last_id: str = ""


class SseParser:
    """Reads one stream. `retry` means nothing to it, and an event that the end of the stream cuts off is none."""

    def __init__(self, limit: int) -> None:
        """`limit` is the most bytes of one event's data, and of one line."""
        self._lines = Lines(limit + len("data: "))
        self._limit = limit
        self._first = True
        self._type = ""
        self._data: list[str] = []
        self._held = 0
        self._last_id = ""

    def feed(self, piece: bytes) -> list[SseEvent]:
        """The events that this piece ends. TooLongError."""
        events = []
        for line in self._lines.feed(piece):
            if self._first:
                self._first = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901 - the mark is no part of the line
            if line:
                self._field(line)
            elif (event := self._ended()) is not None:
                events.append(event)
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._held += len(line)
            if self._held > self._limit + len("data: "):
                raise TooLongError(f"an event is longer than {self._limit} bytes")
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._last_id = value

    def _ended(self) -> SseEvent | None:
        kind, data = self._type or "message", self._data
        self._type, self._data, self._held = "", [], 0
        return SseEvent(kind, "\n".join(data), self._last_id) if data else None
