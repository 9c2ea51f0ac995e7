"""Calls of tools, put together from the pieces in which endpoints send them.

OpenAI gives each call an index, and sends its id and name with the first piece. Others send whole calls that are all at
index 0 (Ollama), without an index (Gemini), with empty ids, with the id and name in every piece, with another id in
every piece, with arguments that are an object, or a call that is not wrapped in `function`. What settles it where index
and id do not: after arguments that are one whole JSON object, more of them are another call's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from worker_svc.tasks.documents import well_formed
from worker_svc.tasks.failures import protocol
from worker_svc.tasks.json_closing import JsonClosing
from worker_svc.tasks.json_numbers import whole_number
from worker_svc.tasks.kept_members import KeptMembers
from worker_svc.tasks.text import Text

_CALL_BYTES: Final = 64
_BODIES: Final = ("function", "custom")
_ARGUMENTS: Final = ("arguments", "input", "parameters", "args")
_KNOWN: Final = frozenset({"id", "index", "type", "name", *_BODIES, *_ARGUMENTS})
_BLANKS: Final = 64
"""White space by which the same arguments may differ: more is not looked for, which would take long again and again."""
_OBJECT: Final = re.compile(r'\s*\{\s*(?:(")|$)')
_PLACEHOLDER: Final = "{}"
"""Arguments that some endpoints begin a call with, and then send the true ones."""


class ToolCalls:
    """The calls of one choice."""

    def __init__(self, count: Callable[[int], None]) -> None:
        """`count` is told how many bytes more there are."""
        self._count = count
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return any(call.says_something for call in self._calls)

    def take(self, told: Any, *, whole: bool) -> None:
        """Takes a member `tool_calls`: of a message, where each call is `whole`, or of a delta.

        TaskError `HANDLER_PROTOCOL` for what is no list of calls.
        """
        before = len(self._calls) if whole else 0
        for place, one in enumerate(told if isinstance(told, list) else [told]):
            piece = _Piece(one)
            if place < before and self._calls[place].is_all_of(piece):
                continue  # a message that repeats its deltas
            call = (None if whole else self._continued(piece)) or self._begin()
            self._remember(call, piece)
            call.take(piece)
            self._count(piece.size)

    def result(self) -> list[dict[str, Any]]:
        """The calls as OpenAI would have sent them in a message. A call that says nothing is none."""
        return [call.result() for call in self._calls if call.says_something]

    def broken(self) -> list[str]:
        """The names of those whose arguments are no JSON."""
        return [call.name for call in self._calls if call.says_something and not call.is_sound()]

    def _begin(self) -> _Call:
        self._calls.append(_Call())
        self._count(_CALL_BYTES)
        return self._calls[-1]

    def _remember(self, call: _Call, piece: _Piece) -> None:
        if piece.index is not None:
            self._at[piece.index] = call
        if piece.id:
            self._by_id[piece.id] = call

    def _continued(self, piece: _Piece) -> _Call | None:
        """The call that a piece belongs to; None where it begins one."""
        known = self._candidate(piece)
        return None if known is None or known.is_over_for(piece) else known

    def _candidate(self, piece: _Piece) -> _Call | None:
        at = self._at.get(piece.index) if piece.index is not None else None
        by_id = self._by_id.get(piece.id) if piece.id else None
        if at is not None:
            return by_id if by_id is not None and at.id != piece.id else at
        if by_id is not None:
            begun_here = piece.index is not None and piece.name
            return None if begun_here and not by_id.is_within(piece) else by_id
        last = self._calls[-1] if self._calls and piece.index is None else None
        return last if last is not None and (not piece.id or not piece.name or not last.id) else None


class _Piece:
    """What an endpoint sent of a call."""

    def __init__(self, told: Any) -> None:
        body = _body(told)
        self.id = _word(told.get("id"))
        self.index = whole_number(told.get("index"))
        self.kind = _word(told.get("type"))
        self.name = _word(body.get("name"))
        self.custom = body is told.get("custom")
        arguments = next((body[name] for name in _ARGUMENTS if body.get(name) is not None), "")
        self.is_value = not isinstance(arguments, str)
        """Arguments that are no text are whole."""
        self.arguments: str = json.dumps(arguments, ensure_ascii=False) if self.is_value else arguments
        self.more = {name: value for name, value in told.items() if name not in _KNOWN}
        self.more_of_body = {name: value for name, value in body.items() if name not in _KNOWN and body is not told}
        self.size = len(self.arguments)


class _Call:
    """One call."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self._kind = ""
        self._custom = False
        self._arguments = Text()
        self._closing = JsonClosing()
        self._letters = 0
        self._more = KeptMembers(joins=False)
        self._more_of_body = KeptMembers(joins=False)
        self._has_more = False

    @property
    def says_something(self) -> bool:
        return bool(self.id or self.name or self._arguments or self._has_more)

    @property
    def _is_closed(self) -> bool:
        """Whether the arguments are one whole object. A custom tool's are any text, of which more may always come."""
        return self._closing.whole and not self._custom

    def take(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        self._kind = self._kind or piece.kind
        self._custom = self._custom or piece.custom
        self._has_more = self._has_more or bool(piece.more)
        self._more.take(piece.more, ())
        self._more_of_body.take(piece.more_of_body, ())
        if piece.name and piece.name != self.name:
            self.name = piece.name if piece.name.startswith(self.name) else self.name + piece.name
        if self.repeats(piece) or self._says_again(piece):
            return
        if self._goes_over(piece):
            self._arguments, self._closing, self._letters = Text(), JsonClosing(), 0
        if self._has_placeholder and piece.arguments.strip():
            self._arguments, self._closing, self._letters = Text(), JsonClosing(), 0
        self._arguments.add(piece.arguments)
        self._closing.feed(piece.arguments)
        self._letters += len(piece.arguments)

    def repeats(self, piece: _Piece, *, by_id: bool = True) -> bool:
        """Whether the piece is this whole call once more: `by_id`, both have the same id; else none has another."""
        if piece.name != self.name or (piece.id != self.id if by_id else piece.id and self.id and piece.id != self.id):
            return False
        if (by_id and not (piece.id and self._is_closed)) or abs(len(piece.arguments) - self._letters) > _BLANKS:
            return False
        return piece.arguments.strip() == self._arguments.whole().strip()

    def is_all_of(self, piece: _Piece) -> bool:
        """Whether a call of a message is this one, of which the pieces have come."""
        another = piece.name != self.name or (piece.id and self.id and piece.id != self.id)
        return not another and (self.repeats(piece, by_id=False) or self._has_value_of(piece))

    def _says_again(self, piece: _Piece) -> bool:
        """Whether a piece that names no other call has these arguments once more, written otherwise or as a text."""
        if (piece.id and piece.id != self.id) or (piece.name and not piece.id) or piece.name not in ("", self.name):
            return False
        return self._has_value_of(piece)

    def _has_value_of(self, piece: _Piece) -> bool:
        """Whether the arguments of a piece are these, in whatever way they are written."""
        if not self._is_closed or self._letters - _BLANKS > len(piece.arguments) * 2:
            return False
        told = _value(piece.arguments)
        return told is not None and _value(self._arguments.whole()) in (told, _value(told))

    def _goes_over(self, piece: _Piece) -> bool:
        """Whether the arguments begin with all before them, which JSON cannot: each piece holds the whole so far."""
        if self._custom or self._closing.whole or len(piece.arguments) <= self._letters:
            return False
        begins = self._letters > 1 and piece.arguments.startswith('{"')
        return begins and piece.arguments.startswith(self._arguments.whole())

    def is_within(self, piece: _Piece) -> bool:
        """Whether a piece that names the call comes while its arguments do, and goes on with them."""
        if not self._arguments or self._is_closed or piece.name != self.name:
            return False
        return self._custom or not _begins_object(piece.arguments, quoted=self._closing.quoted)

    def is_over_for(self, piece: _Piece) -> bool:
        """Whether the piece, at the place of this call, begins another one."""
        another_id = bool(piece.id and self.id) and piece.id != self.id
        another_name = bool(piece.name and self.name) and piece.name != self.name
        if self._is_closed:
            return self._is_over_when_whole(piece, another_id=another_id, another_name=another_name)
        if piece.is_value and self._arguments:
            return True
        if another_id:
            return bool(piece.name) and (another_name or self._custom or not self._arguments)
        goes_on = bool(self.id) and not piece.id and not self._arguments
        return another_name and not goes_on and not (piece.id and piece.id == self.id)

    def _is_over_when_whole(self, piece: _Piece, *, another_id: bool, another_name: bool) -> bool:
        if not piece.arguments.strip():
            return (another_id and bool(piece.name)) or (another_name and not piece.id)
        if another_id or another_name:
            return True
        if self._has_placeholder and (not piece.name or (piece.id and piece.id == self.id)):
            return False
        return not (self.repeats(piece) or self._says_again(piece))

    @property
    def _has_placeholder(self) -> bool:
        return self._is_closed and self._letters < _BLANKS and self._arguments.whole().strip() == _PLACEHOLDER

    def is_sound(self) -> bool:
        """Whether the arguments are JSON; none at all are, too, and those of a custom tool are any text."""
        text = self._arguments.whole()
        if self._custom or not text.strip():
            return True
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return True

    def result(self) -> dict[str, Any]:
        self._arguments.end()
        place, arguments = ("custom", "input") if self._custom else ("function", "arguments")
        body = {"name": self.name, arguments: self._arguments.whole()}
        body = self._more_of_body.result() | body
        return self._more.result() | {"id": self.id, "type": self._kind or place, place: body}


def _body(told: Any) -> dict[str, Any]:
    """Where name and arguments are: in `function`, or in the call itself."""
    if not isinstance(told, dict):
        raise protocol("the endpoint sent a tool call that is no object")
    body = next((told[name] for name in _BODIES if told.get(name) is not None), told)
    if not isinstance(body, dict):
        raise protocol("the endpoint sent a tool call whose function is no object")
    return body


def _begins_object(text: str, *, quoted: bool) -> bool:
    """Whether a text is the beginning of an object; in a text that is `quoted`, a brace alone is none."""
    begun = _OBJECT.match(text)
    return begun is not None and (bool(begun[1]) or not quoted)


def _value(text: Any) -> Any:
    """The value of a JSON text; None for none."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _word(value: Any) -> str:
    if isinstance(value, str):
        return well_formed(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
