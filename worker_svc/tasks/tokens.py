"""Tokens on their way from an endpoint to a job's events: those that come together are one event."""

from __future__ import annotations

import asyncio
from typing import Final

from kernel.handlers import TaskRun
from worker_svc.tasks.endpoint import Answer

_PAUSE: Final = 0.02
_MANY: Final = 5_000
_LONG_PAUSE: Final = 0.25
"""So long a text, with more than so many events, gets fewer a second: the events of one job are limited."""
_LONGEST: Final = 4_096
"""Letters of one event. Each takes at most 12 bytes of JSON, and an event has room for 65,536."""


class Tokens:
    """Writes a text as `token` events, no more often than every 20 ms. No text is held longer than that."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._held: list[str] = []
        self._written = 0
        self._next = 0.0

    def add(self, text: str) -> None:
        """Takes a piece of the text; it is written by the next `next_piece` or `flush`."""
        if text:
            self._held.append(text)

    async def flush(self) -> None:
        """Writes what is held."""
        text = "".join(self._held)
        self._held.clear()
        for start in range(0, len(text), _LONGEST):
            await self._run.token(text[start : start + _LONGEST])
            self._written += 1
        self._next = asyncio.get_running_loop().time() + (_PAUSE if self._written < _MANY else _LONG_PAUSE)

    async def next_piece(self, answer: Answer, patience: float | None = None) -> bytes:
        """The next bytes of an answer, while what is held is written in time.

        Empty at the end, and where nothing is held and nothing came within `patience` seconds.
        """
        while True:
            wait = patience
            if self._held:
                wait = self._next - asyncio.get_running_loop().time()
                if wait <= 0:
                    await self.flush()
                    continue
            piece = await answer.read(wait)
            if piece is not None:
                return piece
            if not self._held:
                return b""
