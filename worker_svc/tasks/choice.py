"""One choice of a completion as it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from worker_svc.tasks.content_parts import read_content
from worker_svc.tasks.documents import well_formed
from worker_svc.tasks.failures import protocol
from worker_svc.tasks.kept_members import KeptMembers
from worker_svc.tasks.snapshots import SnapshotText
from worker_svc.tasks.thinking import REASONING, Thinking
from worker_svc.tasks.tool_calls import ToolCalls

TEXT: Final = "text"
Said = tuple[str, str]
"""`TEXT` or `REASONING`, and a piece of it."""
_NO_REASON: Final = frozenset(
    {"", "null", "none", "continue", "finish_reason_unspecified", "generating", "in_progress", "pending", "unfinished"}
)
"""What some endpoints write in place of null."""
_OF_CHOICE: Final = frozenset({"index", "delta", "message", "finish_reason", "text", "error"})
_CALLED: Final = frozenset({"function_call", "tool_call", "tool_calls", "tool_use"})
_PLAIN: Final = "stop"
_SERIES: Final = ("logprobs", "token_ids")
"""Members with an entry for each token of a chunk."""
_OF_DELTA: Final = frozenset({"role", "content", "tool_calls", "function_call", "error"}) | Thinking.MEMBERS


class Choice:
    """The text, the thinking, the calls, and what else came."""

    def __init__(self, count: Callable[[int], None]) -> None:
        """`count` is told how many bytes more there are."""
        self.finish_reason: str | None = None
        self.calls = ToolCalls(count)
        self._count = count
        self._text = SnapshotText()
        self._thinking = Thinking(count)
        self._parts: list[Any] = []
        self._function = ToolCalls(count)
        self._of_choice = KeptMembers(joins=False)
        self._series = KeptMembers(joins=True, series=True)
        self._of_delta = KeptMembers(joins=True)

    def take(self, choice: dict[str, Any]) -> Iterator[Said]:
        """Takes a choice of a chunk, or of a whole completion; gives what is new. TaskError `HANDLER_PROTOCOL`."""
        reason = _reason(choice.get("finish_reason"))
        if reason is not None and not (self.finish_reason and reason == _PLAIN):
            self.finish_reason = reason  # a `stop` that follows another reason tells nothing
        self._of_choice.take({name: value for name, value in choice.items() if name not in _SERIES}, _OF_CHOICE)
        self._count(self._series.take({name: choice[name] for name in _SERIES if choice.get(name)}, ()))
        delta, message = _object(choice, "delta"), _object(choice, "message")
        if delta:
            yield from self._take(delta, whole=False, last=False)
        if message and not _says(delta):
            yield from self._take(message, whole=True, last=reason is not None)
        if isinstance(choice.get("text"), str) and not (delta.get("content") or message.get("content")):
            yield from self._piece(choice["text"])

    @property
    def lacks_calls(self) -> bool:
        """Whether it ended with a call of a tool that has not come."""
        called = str(self.finish_reason).lower() in _CALLED
        return called and not (self.calls or self._function or self._parts)

    @property
    def left_out(self) -> bool:
        """Whether some of what came was taken for a repetition, and left out."""
        return self._text.left_out or self._thinking.left_out

    def end(self) -> Iterator[Said]:
        """No more comes."""
        yield from self._thought()
        if rest := self._text.end():
            yield TEXT, rest

    def result(self) -> dict[str, Any]:
        """The text and the finish reason, and under their names what else there was."""
        result: dict[str, Any] = {"text": self._text.text.whole(), "finish_reason": self.finish_reason}
        if self.calls:
            result["tool_calls"] = self.calls.result()
        if self._function:
            result["function_call"] = self._function.result()[-1]["function"]
        if self._parts:
            result["content_parts"] = self._parts
        for kept in (self._thinking, self._series, self._of_delta, self._of_choice):
            result = kept.result() | result
        return result

    def _take(self, delta: dict[str, Any], *, whole: bool, last: bool) -> Iterator[Said]:
        content = read_content(delta.get("content"))
        for piece in self._thinking.take(delta, content.thinking, whole=whole, last=last):
            yield REASONING, piece
        if content.text:
            yield from self._thought()
        for part in content.others:
            self._count(self._part(part))
        if delta.get("tool_calls"):
            self.calls.take(delta["tool_calls"], whole=whole)
        if delta.get("function_call"):
            told = {"index": 0, "id": "function_call", "function": delta["function_call"]}
            self._function.take(told, whole=whole)
        self._count(self._of_delta.take(delta, _OF_DELTA, whole=whole))
        if whole:
            new = self._text.message(content.text, last=last)
            self._count(len(new.encode()))
            if new:
                yield TEXT, new
        else:
            yield from self._piece(content.text)

    def _thought(self) -> Iterator[Said]:
        """What of the thinking was held until now."""
        if rest := self._thinking.end():
            yield REASONING, rest

    def _piece(self, text: str) -> Iterator[Said]:
        new = self._text.add(text)
        self._count(len(new.encode()))
        if new:
            yield TEXT, new

    def _part(self, part: Any) -> int:
        kept = KeptMembers(joins=False)
        size = KeptMembers(joins=True).take(part, ())
        kept.take(part, ())
        self._parts.append(kept.result())
        return size


def _object(choice: dict[str, Any], name: str) -> dict[str, Any]:
    value = choice.get(name)
    if isinstance(value, str):
        return {"content": value}
    if value is not None and not isinstance(value, dict):
        raise protocol(f"the endpoint sent a choice whose {name} is no object")
    return value or {}


def _says(delta: dict[str, Any]) -> bool:
    """Whether a delta says anything but whose turn it is."""
    return any(value not in (None, "", [], {}) for name, value in delta.items() if name != "role")


def _reason(value: Any) -> str | None:
    """A finish reason of any vendor; some tell it as an object with its type."""
    if isinstance(value, dict):
        value = value.get("type") or value.get("reason")
    if value is None or value is False:
        return None
    text = well_formed(str(value))
    return None if text.strip().lower() in _NO_REASON else text
