"""Bytes in UTF-16 or UTF-32 become UTF-8: nothing else that is read here looks at more than one byte a letter."""

from __future__ import annotations

import codecs
from typing import Final

from worker_svc.tasks.failures import protocol

_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks. The longer ones come first: one begins with that of UTF-16."""
_PATTERNS: Final[dict[tuple[bool, ...], str]] = {
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}
"""Which of the first four bytes are zero where ASCII letters come first, as they do in events and in JSON."""
_HEAD: Final = 4


class WideText:
    """Decodes one body. It passes bytes on as they are unless the first four say that the letters are wide."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """The bytes of UTF-8 that are certain by now; `last` ends the body. TaskError `HANDLER_PROTOCOL`."""
        if self._head is not None:
            piece = self._head + piece
            if len(piece) < _HEAD and not last:
                self._head = piece
                return b""
            self._head, name = None, _encoding(piece)
            self._decoder = codecs.getincrementaldecoder(name)() if name else None
        if self._decoder is None:
            return piece
        try:
            return self._decoder.decode(piece, last).encode()
        except UnicodeError as error:
            raise protocol(f"the endpoint sent broken UTF-16 or UTF-32: {getattr(error, 'reason', error)}") from error


def narrowed(body: bytes) -> bytes:
    """A whole body. TaskError `HANDLER_PROTOCOL` for one that is cut within a letter."""
    return WideText().feed(body, last=True)


def _encoding(head: bytes) -> str:
    """The wide encoding that a body begins in; empty for any other."""
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), "")
    return marked or _PATTERNS.get(tuple(byte == 0 for byte in head[:_HEAD]), "")
