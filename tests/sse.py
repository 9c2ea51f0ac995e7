"""Server-Sent Events as a browser reads them (WHATWG HTML, section 9.2.6): the one reader of all tests."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

ACCEPT = {"Accept": "text/event-stream"}
_LINE = re.compile(rb"(.*?)(?:\r\n|\n|\r(?!\Z))", re.DOTALL)
"""A line and its end. A CR at the end of what has come may be half of a CRLF."""


@dataclass(frozen=True)
class Event:
    """What a browser would dispatch. `last_id` is the id that it would reconnect with."""

    type: str
    data: str
    last_id: str = ""
    id: str | None = None
    """The id that this event itself has; None for none."""

    @property
    def json(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)


class Reader:
    """Bytes go in, in pieces of any size, and events come out. What is unfinished at the end is no event."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self.retry: int | None = None
        self.last_id = ""
        self._rest = b""
        self._begun = False
        self._clear()

    def feed(self, piece: bytes, *, last: bool = False) -> list[Event]:
        """The events that this piece completes; `last` where nothing follows, so that a CR is an end."""
        text = self._rest + piece
        found: list[Event] = []
        end = 0
        for line in _LINE.finditer(text):
            end = line.end()
            self._take(line[1], found)
        self._rest = text[end:]
        if last and self._rest.endswith(b"\r"):
            self._take(self._rest[:-1], found)
        return found

    def _take(self, raw: bytes, found: list[Event]) -> None:
        line = raw.decode(errors="replace")
        if not self._begun:
            line = line.removeprefix("\ufeff")
            self._begun = True
        if line:
            self._field(*line.partition(":")[::2])
            return
        if self._data:
            found.append(Event(self._type or "message", "\n".join(self._data), self.last_id, self._id))
        self._clear()

    def _field(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self.last_id = self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value)
        elif not name:
            self.comments.append(value)

    def _clear(self) -> None:
        self._type = ""
        self._data: list[str] = []
        self._id: str | None = None


def parse(wire: bytes) -> list[Event]:
    """The events of a whole stream."""
    return Reader().feed(wire, last=True)


async def events(answer: aiohttp.ClientResponse, reader: Reader | None = None) -> AsyncIterator[Event]:
    """The events of an answer as they come; `reader` keeps what else is in the stream."""
    reader = reader or Reader()
    async for piece in answer.content.iter_any():
        for event in reader.feed(piece):
            yield event
