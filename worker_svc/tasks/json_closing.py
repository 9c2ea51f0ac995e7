"""Where a JSON object that comes in pieces ends."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(r'["\\{}\[\]]')


class JsonClosing:
    """Whether a text in pieces is one whole JSON object or list by its brackets. Looks at each letter once."""

    def __init__(self) -> None:
        self._depth = 0
        self._begun = False
        self._quoted = False
        self._escaped = False

    @property
    def whole(self) -> bool:
        """Whether every bracket that was opened is closed, and at least one was."""
        return self._begun and self._depth == 0

    @property
    def quoted(self) -> bool:
        """Whether the end so far is within a text."""
        return self._quoted

    def feed(self, piece: str) -> None:
        """Takes a piece."""
        if not piece:
            return
        place = 1 if self._escaped else 0
        while (mark := _MARK.search(piece, place)) is not None:
            place = mark.end()
            if mark[0] == '"':
                self._quoted = not self._quoted
            elif self._quoted:
                place += mark[0] == "\\"
            elif mark[0] in "{[":
                self._depth += 1
                self._begun = True
            elif mark[0] in "}]":
                self._depth = max(0, self._depth - 1)
        self._escaped = place > len(piece)
