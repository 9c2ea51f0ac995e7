"""A stream that comes once more after its end, as a proxy sends it that asked twice: it counts once."""

from __future__ import annotations

from typing import Any, Final

from worker_svc.tasks.failures import protocol
from worker_svc.tasks.repeating_deltas import is_telling

Chunk = dict[str, Any]
_ROLE: Final = "role"


class RepeatedStreams:
    """Tells which chunks are new.

    After the last finish reason, chunks that are those of the beginning are held: they are dropped when all have come,
    or the stream ends, and are given after all where another one follows. Where the first chunk comes twice and says
    only whose turn it is, each chunk is taken for a pair of which the second one is dropped, as long as all are pairs.
    """

    def __init__(self) -> None:
        self._first: list[int] = []
        """What tells each chunk of the first stream from the others."""
        self._held: list[Chunk] = []
        self._id: Any = None
        self._ids_differ = False
        self._one_is_telling = False
        self._last = 0
        self._number = 0
        self._pairs = True

    def new_of(self, chunk: Chunk, *, finished: bool) -> list[Chunk]:
        """The chunks to take now; `finished` where every choice before has ended.

        TaskError `HANDLER_PROTOCOL` for another answer that follows the first.
        """
        if not chunk.get("choices"):
            return [chunk]
        mark = hash(repr(chunk["choices"]))
        if self._is_second_of_pair(chunk, mark):
            return []
        if not finished:
            self._remember(chunk, mark)
            return [chunk]
        if self._first[len(self._held)] == mark and (len(self._first) > 1 or self._one_is_telling):
            self._held.append(chunk)
            if len(self._held) == len(self._first):
                self._held.clear()
            return []
        self._check_id(chunk)
        held, self._held = self._held, []
        return [*held, chunk]

    def _is_second_of_pair(self, chunk: Chunk, mark: int) -> bool:
        if not self._pairs:
            return False
        self._number += 1
        if self._number % 2:
            self._last = mark
            return False
        self._pairs = mark == self._last and (self._number > 2 or _says_nothing(chunk))
        return self._pairs

    def _remember(self, chunk: Chunk, mark: int) -> None:
        self._first.append(mark)
        self._one_is_telling = len(self._first) == 1 and is_telling(_text(chunk))
        known, self._id = self._id, chunk.get("id") or self._id
        self._ids_differ = self._ids_differ or known not in (None, self._id)

    def _check_id(self, chunk: Chunk) -> None:
        other = chunk.get("id") and self._id and chunk["id"] != self._id
        if other and not self._ids_differ and len(self._first) > 1 and _text(chunk):
            raise protocol("the endpoint sent another answer after the end of the first")


def _text(chunk: Chunk) -> str:
    """The text of the first choice."""
    delta = chunk["choices"][0].get("delta") if isinstance(chunk["choices"][0], dict) else None
    text = delta.get("content") if isinstance(delta, dict) else None
    return text if isinstance(text, str) else ""


def _says_nothing(chunk: Chunk) -> bool:
    """Whether the chunk only says whose turn it is."""
    delta = chunk["choices"][0].get("delta") if isinstance(chunk["choices"][0], dict) else None
    return (
        isinstance(delta, dict) and _ROLE in delta and not any(value for name, value in delta.items() if name != _ROLE)
    )
