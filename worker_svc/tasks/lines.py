"""Lines out of bytes that come in any pieces."""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(rb"\r\n|\r|\n")


class TooLongError(ValueError):
    """A line, or what is made of lines, is longer than the reader was told to hold."""


class Lines:
    """Cuts a stream into lines. CRLF, LF and CR each end one, also where a piece ends between CR and LF."""

    def __init__(self, limit: int) -> None:
        """`limit` is the most bytes of one line."""
        self._limit = limit
        self._begun: list[bytes] = []
        self._held = 0
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece ends, without their ends. TooLongError."""
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        *ended, begun = _END.split(piece)
        if ended:
            ended[0] = self._joined(ended[0])
        self._held += len(begun)
        self._begun.append(begun)
        if self._held > self._limit or any(len(line) > self._limit for line in ended):
            raise TooLongError(f"a line is longer than {self._limit} bytes")
        return ended

    def rest(self) -> bytes:
        """What stands after the last end of a line."""
        return self._joined(b"")

    def begins_with(self, beginning: bytes) -> bool:
        """Whether the line that has begun begins so; true where none has."""
        return next((piece for piece in self._begun if piece), beginning).startswith(beginning)

    def _joined(self, end: bytes) -> bytes:
        self._begun.append(end)
        line = b"".join(self._begun)
        self._begun.clear()
        self._held = 0
        return line
