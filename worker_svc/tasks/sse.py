"""Server-Sent Events, read as the WHATWG's HTML standard says (section 9.2.6): bytes in any pieces become events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from worker_svc.tasks.lines import Lines, TooLongError

_BOM: Final = b"\xef\xbb\xbf"
_COMMENT: Final = b":"
_SILENT: Final = frozenset({"", "retry"})
"""The names of lines that say nothing: a comment has none."""


def _replacing(line: bytes) -> str:
    """As the standard decodes."""
    return line.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `type` is `message` where the stream names none; `last_id` is the id that holds by now."""

    type: str
    data: str
    last_id: str = ""
    others: tuple[str, ...] = ()
    """Lines among its own that the standard has no field for; it is then given even where it has no data."""
    own_id: str = field(default="", compare=False)
    """The id that stands in the event itself."""


class SseParser:
    """Reads one stream. `retry` means nothing to it.

    By the standard an event that the end of the stream cuts off is none; `end` gives it to whoever wants it anyway.
    """

    def __init__(self, limit: int, decode: Callable[[bytes], str] = _replacing) -> None:
        """`limit` is the most bytes of one event's data, and of one line; `decode` makes text of a line."""
        self._decode = decode
        self._lines = Lines(limit + len("data: "))
        self._limit = limit
        self._first = True
        self._type = ""
        self._data: list[str] = []
        self._others: list[str] = []
        self._held = 0
        self._last_id = self._own_id = ""

    @property
    def within_event(self) -> bool:
        """Whether an event has begun. A comment begins none."""
        return bool(self._data or self._others) or not self._lines.begins_with(_COMMENT)

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

    def end(self) -> SseEvent | None:
        """The event that the end of the stream cuts off; None where it ends between two."""
        if rest := self._lines.rest():
            self._field(rest.removeprefix(_BOM) if self._first else rest)
        return self._ended()

    def _field(self, line: bytes) -> None:
        text = self._decode(line)
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._hold(line)
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id":
            self._own_id = self._own_id if "\0" in value else value
            self._last_id = self._last_id if "\0" in value else value
        elif name not in _SILENT:
            self._hold(line)
            self._others.append(text)

    def _hold(self, line: bytes) -> None:
        self._held += len(line)
        if self._held > self._limit + len("data: "):
            raise TooLongError(f"an event is longer than {self._limit} bytes")

    def _ended(self) -> SseEvent | None:
        kind, own_id, data, others = self._type or "message", self._own_id, self._data, self._others
        self._type, self._own_id, self._data, self._others, self._held = "", "", [], [], 0
        return SseEvent(kind, "\n".join(data), self._last_id, tuple(others), own_id) if data or others else None
