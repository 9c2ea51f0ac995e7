"""The content of a message: a text, or a list of parts that are text, thinking or something else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from worker_svc.tasks.failures import protocol

_THINKING: Final = frozenset({"thinking", "reasoning", "reasoning_text"})
_TEXT: Final = frozenset({"text", "output_text"})
_PLACES: Final = ("text", "thinking", "reasoning", "content", "summary", "value")
"""Where a part, or what a member like `reasoning` holds, has its text."""
_DEEPEST: Final = 8


@dataclass(slots=True)
class Content:
    """What a message says."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    """The parts that are neither."""

    @property
    def text(self) -> str:
        """All text of it."""
        return "".join(self.texts)

    @property
    def thinking(self) -> str:
        """All thinking in it."""
        return "".join(self.thoughts)


def read_content(value: Any) -> Content:
    """The content of a message, as a text, a part or a list of them. TaskError `HANDLER_PROTOCOL` for anything else."""
    if isinstance(value, str):
        return Content([value])
    content = Content()
    for part in value if isinstance(value, list) else [] if value is None else [value]:
        _take(content, part)
    return content


def text_in(value: Any, depth: int = 0) -> str:
    """The text of a part, of what it holds, or of a list of them; empty where there is none."""
    if isinstance(value, str):
        return value
    if depth > _DEEPEST:
        return ""
    if isinstance(value, list):
        return "".join(text_in(one, depth + 1) for one in value)
    if isinstance(value, dict):
        return next((found for name in _PLACES if (found := text_in(value.get(name), depth + 1))), "")
    return ""


def _take(content: Content, part: Any) -> None:
    if isinstance(part, str):
        content.texts.append(part)
    elif not isinstance(part, dict) or not ("type" in part or set(part) & set(_PLACES)):
        raise protocol("the endpoint sent content that is no text and no part")
    elif part.get("type") in _THINKING or "thinking" in part:
        content.thoughts.append(text_in(part))
    elif isinstance(part.get("text"), str | dict):
        content.texts.append(text_in(part["text"]))
    elif part.get("type") in _TEXT and (text := text_in(part)):
        content.texts.append(text)
    else:
        content.others.append(part)
