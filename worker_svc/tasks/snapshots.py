"""A text of which an endpoint sends pieces (`delta`), the whole so far (`message`), or both, and no letter twice."""

from __future__ import annotations

from worker_svc.tasks.failures import protocol
from worker_svc.tasks.repeating_deltas import RepeatingDeltas
from worker_svc.tasks.text import Text


class SnapshotText:
    """A text in pieces and snapshots.

    Where pieces come as `delta`, each `message` is a snapshot of the whole. Where none do, the second `message` tells:
    one that begins with the first is a snapshot, any other is the next piece.
    """

    def __init__(self) -> None:
        self.text = Text()
        self._repeating = RepeatingDeltas(self.text)
        self._deltas = False
        self._messages = 0
        self._pieces: bool | None = None
        """Whether messages are pieces; None until it is known."""

    @property
    def left_out(self) -> bool:
        """Whether some of the pieces were taken for a repetition, and left out."""
        return self._repeating.left_out

    def add(self, piece: str) -> str:
        """Takes a piece; returns what is new."""
        self._deltas = self._deltas or bool(piece)
        return self.text.add(self._repeating.new_of(piece))

    def end(self) -> str:
        """No more comes; returns what was held until now."""
        return self._released() + self.text.end()

    def message(self, content: str, *, last: bool) -> str:
        """Takes the content of a message, `last` where it tells a finish reason; returns what is new.

        TaskError `HANDLER_PROTOCOL` for a snapshot that contradicts what came before.
        """
        if not content:
            return ""
        released = self._released()
        self._repeating.settle()
        return released + self._message(content, last=last)

    def _released(self) -> str:
        return self.text.add(self._repeating.end())

    def _message(self, content: str, *, last: bool) -> str:
        if self._pieces and not (last and len(content) == self.text.length):
            self._messages += 1
            return self.text.add(content)
        known = self.text.whole()
        if not known:
            self._messages += 1
            return self.text.add(content)
        if self._deltas or self._is_snapshot(known, content, last=last):
            return self._rest(known, content)
        self._messages += 1
        return self.text.add(content)

    def _is_snapshot(self, known: str, content: str, *, last: bool) -> bool:
        if self._pieces is None:
            self._pieces = not content.startswith(known) or (content == known and not last)
            return not self._pieces
        return not self._pieces or (last and self._messages > 1 and content == known)

    def _rest(self, known: str, content: str) -> str:
        if content.startswith(known):
            return self.text.add(content[len(known) :])
        if content.strip() != known.strip():
            raise protocol("the endpoint sent a whole message that contradicts the pieces before it")
        return ""
