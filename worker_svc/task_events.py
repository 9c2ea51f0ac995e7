"""The events of one attempt on their way into the job's stream.

One report is out at a time; what is told meanwhile gathers and goes with the next one, so the pace is that of Redis
and there is no timer. A handler that tells faster than that waits. Pieces of a text that gather one after the other
become one event; the order of events is never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from worker_svc.task_json import json_bytes

Report = Callable[[int, Sequence[tuple[str, bytes]]], "asyncio.Future[bool]"]
"""Writes events from such a number on; False where the attempt is over."""

TEXT_LETTERS: Final = 4096
"""The letters of one `token` event. Each takes at most 12 bytes of JSON, and an event has room for 65,536."""
_MOST_EVENTS: Final = 256
_MOST_BYTES: Final = 131_072
"""What may gather before a handler has to wait."""


class TooManyError(Exception):
    """The attempt has no event left."""


class Events:
    """Gathers events and reports them, numbered from 1."""

    def __init__(self, report: Report, limit: int, over: Callable[[], None]) -> None:
        """`limit` is the most events of the attempt; `over` is called when a report says that the attempt is over."""
        self._report = report
        self._limit = limit
        self._over = over
        self._gathered: list[tuple[str, bytes]] = []
        self._text: list[str] = []
        self._letters = 0
        self._bytes = 0
        self._number = 0
        self._next = 1
        self._out = False
        self._void = False
        self._room = asyncio.Event()

    def add(self, kind: str, data: bytes) -> None:
        """Takes an event. `TooManyError` beyond the limit."""
        self._count()
        self._seal()
        self._gathered.append((kind, data))
        self._bytes += len(data)
        self._send()

    def text(self, piece: str) -> None:
        """Takes a piece of the result, Unicode, of 1 to `TEXT_LETTERS` letters. `TooManyError` beyond the limit."""
        if not self._text or self._letters + len(piece) > TEXT_LETTERS:
            self._count()
            self._seal()
        self._text.append(piece)
        self._letters += len(piece)
        self._send()

    async def room(self) -> None:
        """Waits until more may be told. Lets others run in any case, or a busy handler would hold its own events."""
        await asyncio.sleep(0)
        while self._full and not self._void:
            self._room.clear()
            await self._room.wait()

    def finish(self) -> None:
        """Reports the rest, behind what is out: a settlement that follows comes after it."""
        if not self._void:
            self._void = True
            self._seal()
            if self._gathered:
                self._report(self._next, self._gathered)
            self._room.set()

    @property
    def _full(self) -> bool:
        return len(self._gathered) >= _MOST_EVENTS or self._bytes >= _MOST_BYTES

    def _count(self) -> None:
        if self._number >= self._limit:
            raise TooManyError
        self._number += 1

    def _seal(self) -> None:
        """Makes one event of the pieces that have gathered."""
        if self._text:
            data = json_bytes({"text": "".join(self._text)})
            self._gathered.append(("token", data))
            self._bytes += len(data)
            self._text = []
            self._letters = 0

    def _send(self) -> None:
        if self._out or self._void:
            return
        self._seal()
        events, self._gathered, self._bytes = self._gathered, [], 0
        told = self._report(self._next, events)
        self._next += len(events)
        self._out = True
        told.add_done_callback(self._written)

    def _written(self, told: asyncio.Future[bool]) -> None:
        self._out = False
        if self._void:
            return
        if told.cancelled() or not told.result():
            self._void = True
            self._over()
        elif self._gathered or self._text:
            self._send()
        self._room.set()
