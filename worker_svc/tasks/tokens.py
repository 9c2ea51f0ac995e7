"""Text on its way from an endpoint to a job's events: what comes together of one kind is one event."""

from __future__ import annotations

import asyncio
from typing import Final

from kernel.handlers import TaskRun
from worker_svc.tasks.endpoint import ModelAnswer

_PAUSE: Final = 0.02
_MANY: Final = 5_000
_LONG_PAUSE: Final = 0.25
"""So long a text, with more than so many events, gets fewer a second: the events of one job are limited."""
_LONGEST: Final = 4_096
"""Letters of one event. Each takes at most 12 bytes of JSON, and an event has room for 65,536."""


TEXT_EVENT: Final = "token"


class Tokens:
    """Writes a text as `token` events, no more often than every 20 ms. No text is held longer than that.

    Text of another kind, what a model thinks, is written as events of that kind, in the order in which it came.
    """

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._held: list[tuple[str, list[str]]] = []
        self._written = 0
        self._next = 0.0

    def add(self, text: str, kind: str = TEXT_EVENT) -> None:
        """Takes a piece of the text; it is written by the next `next_piece` or `flush`."""
        if text and self._held and self._held[-1][0] == kind:
            self._held[-1][1].append(text)
        elif text:
            self._held.append((kind, [text]))

    async def flush(self) -> None:
        """Writes what is held."""
        held, self._held = self._held, []
        for kind, pieces in held:
            text = "".join(pieces)
            for start in range(0, len(text), _LONGEST):
                await self._write(kind, text[start : start + _LONGEST])
        self._next = asyncio.get_running_loop().time() + (_PAUSE if self._written < _MANY else _LONG_PAUSE)

    async def next_piece(self, answer: ModelAnswer, patience: float | None = None) -> bytes | None:
        """The next bytes of an answer, while what is held is written in time.

        Empty at the end; None where nothing came although the answer was waited for `patience` seconds.
        """
        until = None if patience is None else answer.waited + patience
        while True:
            waits = [] if until is None else [until - answer.waited]
            if self._held:
                waits.append(self._next - asyncio.get_running_loop().time())
                if waits[-1] <= 0:
                    await self.flush()
                    continue
            piece = await answer.read(max(0.0, min(waits)) if waits else None)
            if piece is not None:
                return piece
            if until is not None and answer.waited >= until:
                return None

    async def _write(self, kind: str, text: str) -> None:
        if kind == TEXT_EVENT:
            await self._run.token(text)
        else:
            await self._run.event(kind, {"text": text})
        self._written += 1
