"""A chat completion as it grows: chunks of a stream, or one document, become the result of a job."""

from __future__ import annotations

from typing import Any

from worker_svc.tasks.documents import well_formed
from worker_svc.tasks.failures import protocol, too_large

_BESIDE = {"refusal": "refusal", "reasoning": "reasoning", "reasoning_content": "reasoning"}
"""Texts beside the answer's own that some endpoints give, and their names in the result."""
_CALL_BYTES = 64


class Completion:
    """The first choice of one completion. Refuses to grow beyond `limit` bytes (TaskError `HANDLER_RESULT`)."""

    def __init__(self, limit: int) -> None:
        self.started = False
        """Whether anything of the choice has come."""
        self.finish_reason: str | None = None
        self._limit = limit
        self._size = 0
        self._model: str | None = None
        self._usage: Any = None
        self._text = _Text()
        self._beside: dict[str, _Text] = {}
        self._calls: dict[Any, _Call] = {}

    def take(self, chunk: dict[str, Any]) -> str:
        """Takes a chunk, or a whole completion; returns the new text. TaskError `HANDLER_PROTOCOL` for neither."""
        if isinstance(chunk.get("model"), str):
            self._model = well_formed(chunk["model"])
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        if choices is None and (self._usage is not None or self.started):
            return ""
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise protocol("the endpoint sent a chunk without a list of choices")
        return "".join(self._choice(choice) for choice in choices if choice.get("index") in (None, 0))

    def result(self) -> dict[str, Any]:
        """What the job returns. `tool_calls`, `refusal` and `reasoning` are there where the endpoint gave some."""
        result = {
            "text": self._text.whole(),
            "finish_reason": self.finish_reason,
            "model": self._model,
            "usage": self._usage,
        }
        if self._calls:
            result["tool_calls"] = [call.result() for call in self._calls.values()]
        return result | {name: text.whole() for name, text in self._beside.items()}

    def _choice(self, choice: dict[str, Any]) -> str:
        self.started = True
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = well_formed(choice["finish_reason"])
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise protocol("the endpoint sent a choice whose delta is no object")
        for name, kept_as in _BESIDE.items():
            if delta.get(name):
                self._grow(self._beside.setdefault(kept_as, _Text()), delta[name])
        for place, call in enumerate(_list(delta, "tool_calls")):
            self._call(place if "message" in choice else None, call)
        return self._grow(self._text, delta.get("content"))

    def _call(self, place: int | None, call: Any) -> None:
        function = (call.get("function") or {}) if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise protocol("the endpoint sent a tool call that is no object")
        known = self._calls.setdefault(self._key(place, call), _Call())
        known.id = known.id or _string(call.get("id"))
        known.kind = known.kind or _string(call.get("type"))
        known.name = known.name or _string(function.get("name"))
        self._count(_CALL_BYTES)
        self._grow(known.arguments, function.get("arguments"))

    def _key(self, place: int | None, call: dict[str, Any]) -> Any:
        """Which call a piece belongs to: by its index, else by a new id, else it is one more of the last."""
        if place is not None:
            return place
        if isinstance(call.get("index"), int):
            return call["index"]
        if call.get("id") or not self._calls:
            return _string(call.get("id"))
        return next(reversed(self._calls))

    def _grow(self, text: _Text, piece: Any) -> str:
        if piece is None:
            return ""
        if not isinstance(piece, str):
            raise protocol("the endpoint sent content that is no text")
        new = text.add(piece)
        self._count(len(new.encode()))
        return new

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise too_large(self._limit)


class _Text:
    """Text in pieces, between which a surrogate pair may be split."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """The text that is certain by now."""
        piece = self._half + piece
        self._half = piece[-1] if piece and "\ud800" <= piece[-1] <= "\udbff" else ""
        new = well_formed(piece.removesuffix(self._half))
        self._pieces.append(new)
        return new

    def whole(self) -> str:
        return "".join(self._pieces)


class _Call:
    """One call of a tool."""

    def __init__(self) -> None:
        self.id = self.kind = self.name = ""
        self.arguments = _Text()

    def result(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments.whole()}
        return {"id": self.id, "type": self.kind or "function", "function": function}


def _list(delta: dict[str, Any], name: str) -> list[Any]:
    found = delta.get(name) or []
    if not isinstance(found, list):
        raise protocol(f"the endpoint sent {name} that are no list")
    return found


def _string(value: Any) -> str:
    return well_formed(value) if isinstance(value, str) else ""
