"""Text that comes in pieces."""

from __future__ import annotations

from worker_svc.tasks.documents import well_formed

_REPLACEMENT = "\ufffd"


class Text:
    """Text in pieces, between which a surrogate pair may be split."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""
        self.length = 0
        """Letters so far."""

    def add(self, piece: str) -> str:
        """Takes a piece; returns the text that is certain by now."""
        piece = self._half + piece
        self._half = piece[-1] if piece and "\ud800" <= piece[-1] <= "\udbff" else ""
        new = well_formed(piece.removesuffix(self._half))
        if new:
            self._pieces.append(new)
            self.length += len(new)
        return new

    def end(self) -> str:
        """No more comes: what half a surrogate pair at the end is shown as."""
        if not self._half:
            return ""
        self._half = ""
        self._pieces.append(_REPLACEMENT)
        return _REPLACEMENT

    def whole(self) -> str:
        """All of it so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def __bool__(self) -> bool:
        return bool(self._pieces)
