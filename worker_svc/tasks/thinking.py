"""What a model thinks before it answers, under each of the names that endpoints have for it, and only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from worker_svc.tasks.content_parts import text_in
from worker_svc.tasks.kept_members import KeptMembers
from worker_svc.tasks.snapshots import SnapshotText

REASONING: Final = "reasoning"
_TEXTS: Final = (REASONING, "reasoning_content", "reasoning_text", "thinking", "thinking_content")
_LISTS: Final = ("reasoning_details", "thinking_blocks")
_CONTENT: Final = "thinking_parts"
"""Thinking that stands between the parts of the content."""
_TEXT_OF_ITEM: Final = frozenset({"text", "summary", "thinking"})
_ABOUT_ITEM: Final = frozenset({"type", "index", "id", "format"})


class Thinking:
    """The thinking of one choice."""

    MEMBERS: ClassVar = frozenset((*_TEXTS, *_LISTS))
    """The members of a delta that it takes."""

    def __init__(self, count: Callable[[int], None]) -> None:
        """`count` is told how many bytes more there are."""
        self._count = count
        self._text = SnapshotText()
        self._others: dict[str, SnapshotText] = {}
        self._kept = KeptMembers(joins=True)

    @property
    def left_out(self) -> bool:
        """Whether some of it was taken for a repetition, and left out."""
        return any(text.left_out for text in (self._text, *self._others.values()))

    def take(self, delta: dict[str, Any], parts: str, *, whole: bool, last: bool) -> Iterator[str]:
        """Takes a delta, or a `whole` message, and the thinking in its content; gives what is new.

        Where two names have the same text, it is one thinking. Where they differ, the second is kept under its name.
        """
        said = ""
        for name, text in self._told(delta, parts):
            if name in self._others or (said and text != said):
                self._grow(self._others.setdefault(name, SnapshotText()), text, whole=whole, last=last)
            elif not said:
                said = text
        if said and (new := self._grow(self._text, said, whole=whole, last=last)):
            yield new

    def end(self) -> str:
        """The thinking is over; returns what of it was held until now."""
        rest = self._text.end()
        self._count(len(rest.encode()))
        return rest

    def result(self) -> dict[str, Any]:
        """The members of the job's result."""
        result = self._kept.result()
        for name, text in ((REASONING, self._text), *self._others.items()):
            text.end()
            if text.text:
                result[name] = text.text.whole()
        return result

    def _told(self, delta: dict[str, Any], parts: str) -> Iterator[tuple[str, str]]:
        for name in (*_TEXTS, *_LISTS):
            value = delta.get(name)
            text = text_in(value)
            if text:
                yield name, text
            if name in _LISTS or (value and not text):
                self._keep(name, value)
        if parts:
            yield _CONTENT, parts

    def _keep(self, name: str, value: Any) -> None:
        """Keeps what is more than text: a signature, or what only the endpoint can read."""
        if isinstance(value, list) and name in _LISTS:
            value = [_without_text(item) for item in value if _has_more(item)]
        if value:
            self._count(self._kept.take({name: value}, ()))

    def _grow(self, text: SnapshotText, piece: str, *, whole: bool, last: bool) -> str:
        new = text.message(piece, last=last) if whole else text.add(piece)
        self._count(len(new.encode()))
        return new


def _has_more(item: Any) -> bool:
    if not isinstance(item, dict):
        return not isinstance(item, str)
    return any(value not in (None, "") for name, value in item.items() if name not in _TEXT_OF_ITEM | _ABOUT_ITEM)


def _without_text(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if name not in _TEXT_OF_ITEM and value is not None}
