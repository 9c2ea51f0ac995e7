"""The wire of a completion: bytes in any pieces become JSON objects.

How they are framed is told by the first bytes and not by the media type, which many endpoints get wrong: events (SSE),
an object a line (NDJSON), or documents as a whole. Deviations that do not matter are understood. Anything else is a
TaskError `HANDLER_PROTOCOL` that shows the beginning.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Protocol

from kernel.handlers import TaskError
from worker_svc.tasks.documents import all_parsed
from worker_svc.tasks.event_ids import EventIds
from worker_svc.tasks.failures import protocol
from worker_svc.tasks.lines import Lines, TooLongError
from worker_svc.tasks.refusal import Words
from worker_svc.tasks.sse import SseEvent, SseParser
from worker_svc.tasks.wide_text import WideText

EVENTS: Final = "text/event-stream"
Chunk = dict[str, Any]
_BOM: Final = b"\xef\xbb\xbf"
_JSON: Final = (b"{", b"[")
_FIELD: Final = re.compile(rb"(?:data|event|id|retry|error)?:")
_ERROR_TEXT: Final = "[error"
_LONGEST_FIELD: Final = 8
_BEGINNING: Final = 200
_DATA: Final = "data:"
_BEFORE: Final = "\ufeff \t\0"
"""What may stand before a field, and does not belong there."""
_DONE: Final = re.compile(r"""["'\[<(]*(?:done|end_of_stream|(?<=[\[<])(?:end|eos|finish))["'\]>)]*""", re.IGNORECASE)
_ENDS: Final = frozenset({"close", "complete", "completed", "done", "end", "finish", "finished"})
"""Events that say that nothing follows, whatever their data is."""
_FAILS: Final = frozenset({"exception", "fail", "failed", "failure"})
_ALIVE: Final = frozenset({"ping", "heartbeat", "keepalive", "keep-alive", "keep_alive"})
"""Events that only say that the connection lives."""
_ERROR: Final = "error"


class _Framing(Protocol):
    """One way to send objects."""

    done: bool

    @property
    def within(self) -> bool:
        """Whether an object has begun."""
        ...

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        """The objects that this piece ends."""
        ...

    def end(self) -> Iterator[Chunk]:
        """Those that the end of the body ends. One that is cut off is none."""
        ...


class Chunks:
    """Reads one answer. `TooLongError` for an event, a line or a document that is longer than the limit."""

    def __init__(self, content_type: str, limit: int, words: Words, charset: str | None = None) -> None:
        """`limit` is the most bytes of one object on the wire; `charset` is what bytes are in that are no UTF-8."""
        self._charset = charset or "utf-8"
        self._content_type = content_type
        self._limit = limit
        self._words = words
        self._framing: _Framing | None = None
        self._head = b""
        self._wide = WideText()

    @property
    def done(self) -> bool:
        """Whether the endpoint has told that nothing follows."""
        return self._framing is not None and self._framing.done

    @property
    def within(self) -> bool:
        """Whether an object has begun: its bytes are a sign of progress, and comments are none."""
        return self._framing is not None and self._framing.within

    @property
    def stray(self) -> str:
        """What came that is no part of any protocol, fit to be shown; empty for nothing."""
        return self._words(self._framing.stray) if isinstance(self._framing, _Events) else ""

    def is_one_document(self, objects: int) -> bool:
        """Whether the answer is no stream but one document; `objects` is how many came."""
        return isinstance(self._framing, _Documents) and objects == 1

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        """The objects that this piece ends. None follow once it is `done`."""
        yield from self._fed(self._wide.feed(piece))

    def _fed(self, piece: bytes) -> Iterator[Chunk]:
        if not piece:
            return
        if self._framing is None:
            self._head += piece
            self._framing = self._recognised(ended=False)
            piece = self._head
        if self._framing is not None:
            yield from self._framing.feed(piece)

    def end(self) -> Iterator[Chunk]:
        """The body has ended: the objects that only its end ends."""
        yield from self._fed(self._wide.feed(b"", last=True))
        if self._framing is None and self._head.strip():
            self._framing = self._recognised(ended=True)
            if self._framing is not None:
                yield from self._framing.feed(self._head)
        if self._framing is not None:
            yield from self._framing.end()
        elif self._content_type != EVENTS:
            raise protocol(f"the endpoint sent {self._words(self._content_type)} of no bytes")

    def _recognised(self, *, ended: bool) -> _Framing | None:
        """The framing that the first bytes tell; None where more are needed."""
        head = self._head.removeprefix(_BOM).lstrip()
        if head.startswith(_JSON):
            return _Documents(self._limit, self._charset)
        if self._content_type == EVENTS and head:
            return _Events(self._limit, self._charset)
        if _FIELD.match(head):
            return _Events(self._limit, self._charset)
        if len(head) < _LONGEST_FIELD and not ended:
            return None
        beginning = self._words(head[:_BEGINNING].decode("utf-8", "replace"))
        kind = self._words(self._content_type)
        raise protocol(f"the endpoint sent {kind}, and neither JSON nor events of it: {beginning}")


class _Events:
    """An object an event, or a line of its data where the blank lines between events are missing."""

    def __init__(self, limit: int, charset: str) -> None:
        self._parser = SseParser(limit, partial(_decoded, charset=charset))
        self.done = False
        self.stray = ""
        self._ids = EventIds()

    @property
    def within(self) -> bool:
        return self._parser.within_event

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        for event in self._parser.feed(piece):
            if self.done:
                return
            if not self._ids.is_repeated(event):
                yield from self._told(event)

    def end(self) -> Iterator[Chunk]:
        try:
            event = None if self.done else self._parser.end()
            yield from () if event is None else self._told(event)
        except TaskError:
            return  # it is cut off

    def _told(self, event: SseEvent) -> Iterator[Chunk]:
        for line in event.others:
            yield from self._stray(line)
        data = event.data.strip()
        while data.startswith(_DATA):
            data = data[len(_DATA) :].lstrip()
        if event.type == _ERROR or (_is_failure(event.type) and '"choices"' not in data):
            yield _as_error(data)
        elif event.type in _ENDS and '"choices"' not in data:
            self.done = True
        elif data and not _is_alive(data):
            yield from self._objects(event.type, data)

    def _objects(self, kind: str, data: str) -> Iterator[Chunk]:
        """The objects in the data of an event: several where the blank lines between events are missing."""
        lines = [line.strip() for line in data.split("\n")]
        done = next((place for place, line in enumerate(lines) if _DONE.fullmatch(line)), len(lines))
        self.done = self.done or done < len(lines)
        try:
            told = _objects(all_parsed("\n".join(lines[:done])))
            yield from (one for one in told if not _only_lives(kind, one))
        except TaskError:
            if kind in _ALIVE:
                return
            if not data[0].isalpha() and not data.lower().startswith(_ERROR_TEXT):
                raise
            yield _as_error(data)  # `Error: …`

    def _stray(self, line: str) -> Iterator[Chunk]:
        """A line that is no field of an event: an error as llama.cpp tells it, or JSON without its `data:`."""
        line = line.lstrip(_BEFORE)
        name, _, value = line.partition(":")
        name = name.strip().lower()
        if name == _ERROR:
            yield _as_error(value.strip())
        elif name == "data" or line.startswith("{"):
            yield from self._objects("", (value if name == "data" else line).strip())
        else:
            self.stray = self.stray or line[:_BEGINNING]


class _Documents:
    """Objects one after the other: each on a line of its own, or in any lines to the end of the body."""

    within = True

    def __init__(self, limit: int, charset: str) -> None:
        self.done = False
        self._decoded = partial(_decoded, charset=charset)
        self._limit = limit
        self._lines: Lines | None = None
        self._spread = False
        """Whether the first line holds no whole object."""
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        if self._lines is None:
            piece = self._begin(piece)
        if self._lines is not None:
            for line in self._lines.feed(piece):
                yield from self._told(line)

    def end(self) -> Iterator[Chunk]:
        if self._lines is None:
            yield from _objects(all_parsed(self._decoded(b"".join(self._held))))
            return
        try:
            yield from self._told(self._lines.rest())
        except TaskError:
            return  # it is cut off

    def _begin(self, piece: bytes) -> bytes:
        """Holds the beginning; once its first line turns out to be an object, returns what is to be read as lines."""
        self._held.append(piece if self._held else piece.removeprefix(_BOM).lstrip())
        self._size += len(piece)
        if self._size > self._limit:
            raise TooLongError(f"a document is longer than {self._limit} bytes")
        if self._spread or b"\n" not in self._held[-1]:
            return b""
        held = b"".join(self._held)
        try:
            all_parsed(self._decoded(held.partition(b"\n")[0]))
        except TaskError:
            self._spread = True
            return b""
        self._lines = Lines(self._limit)
        self._held.clear()
        return held

    def _told(self, line: bytes) -> Iterator[Chunk]:
        text = self._decoded(line).strip().removeprefix(_DATA).strip()
        if _DONE.fullmatch(text):
            self.done = True
        elif text and not self.done:
            yield from _objects(all_parsed(text))


def _is_alive(data: str) -> bool:
    """Whether data is none, but a comment in its place."""
    return data.startswith(":") or data.lower() in _ALIVE


def _is_failure(kind: str) -> bool:
    """Whether an event's name says that it tells a failure."""
    return _ERROR in kind.lower() or kind.lower() in _FAILS


def _only_lives(kind: str, value: Chunk) -> bool:
    """Whether an object only says that the connection lives."""
    return "choices" not in value and not value.get(_ERROR) and (kind in _ALIVE or value.get("type") in _ALIVE)


def _decoded(raw: bytes, charset: str) -> str:
    """The text of bytes: UTF-8, which some send whatever they call it; else that of the charset that they tell."""
    raw = raw.removeprefix(_BOM)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            return raw.decode(charset)
        raise protocol(f"the endpoint sent what is no UTF-8: {error.reason}") from error


def _objects(values: list[Any]) -> Iterator[Chunk]:
    """The objects among values; a list of them, as some endpoints send it, is taken apart."""
    for value in values:
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield from value
        elif isinstance(value, str) and value.startswith("{"):
            yield from _objects(all_parsed(value))  # JSON that was written as a text of JSON
        elif value not in (None, ""):
            raise protocol("the endpoint sent JSON that is no object")


def _as_error(data: str) -> Chunk:
    """What an event or a field that is called an error tells."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = data
    if isinstance(value, dict) and value.get(_ERROR):
        return value
    return {_ERROR: value or "an error without a message"}
