"""Chunks of any make in the form that OpenAI gives them: what stands elsewhere is put where OpenAI has it."""

from __future__ import annotations

import json
from typing import Any, Final

from worker_svc.tasks.json_numbers import whole_number

Chunk = dict[str, Any]
_CHOICES: Final = "choices"
_WRAPPERS: Final = ("data", "result", "response", "output", "body")
_PLACES: Final = ("delta", "message")
_OF_CHOICE: Final = frozenset({"delta", "message", "text", "content", "finish_reason", "index"})
_REASON: Final = "finish_reason"
_REASONS: Final = (_REASON, "finishReason", "stop_reason", "stopReason", "done_reason", "finish_details")
_CALLS: Final = "tool_calls"
_NAMES_OF_CALLS: Final = ("toolCalls", "tool_call")
_DEEPEST: Final = 4


def in_openais_form(chunk: Chunk) -> Chunk:
    """The chunk, or one that says the same as OpenAI says it. What is not understood stays as it is."""
    chunk = _with_choices(_unwrapped(chunk))
    choices = chunk.get(_CHOICES)
    reason = next((chunk[name] for name in _REASONS if isinstance(chunk.get(name), str)), None)
    if isinstance(choices, list) and not choices and reason:
        choices = [{}]
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return chunk
    return {**chunk, _CHOICES: [_choice(choice, reason) for choice in choices]}


def is_of_stream(chunk: Chunk) -> bool:
    """Whether a chunk in OpenAI's form is a part of a stream, and no whole completion."""
    choices = chunk.get(_CHOICES)
    deltas = isinstance(choices, list) and any(isinstance(one, dict) and one.get("delta") for one in choices)
    return deltas or str(chunk.get("object")).endswith(".chunk")


def _unwrapped(chunk: Chunk, depth: int = 0) -> Chunk:
    """The chunk that stands in another object."""
    if _CHOICES in chunk or depth > _DEEPEST:
        return chunk
    for name in _WRAPPERS:
        within = chunk.get(name)
        if isinstance(within, str) and within.lstrip().startswith("{"):
            within = _parsed(within)
        if isinstance(within, dict):
            found = _unwrapped(within, depth + 1)
            if _CHOICES in found:
                return found
    return chunk


def _with_choices(chunk: Chunk) -> Chunk:
    """The chunk with a list of choices, where it has them in another form."""
    choices = chunk.get(_CHOICES)
    if isinstance(choices, dict):
        return {**chunk, _CHOICES: [choices] if choices.keys() & _OF_CHOICE else _by_index(choices)}
    if choices is not None:
        return chunk
    if isinstance(chunk.get("choice"), dict):
        return {name: value for name, value in chunk.items() if name != "choice"} | {_CHOICES: [chunk["choice"]]}
    told = {name: chunk[name] for name in _PLACES if isinstance(chunk.get(name), dict)}
    if told and "type" not in chunk:
        return {name: value for name, value in chunk.items() if name not in told} | {_CHOICES: [told]}
    return chunk


def _by_index(found: dict[str, Any]) -> Any:
    """The objects of an object whose names are indexes, as a list; anything else stays."""
    numbered = [(whole_number(name), value) for name, value in found.items()]
    if not all(number is not None and isinstance(value, dict) for number, value in numbered):
        return found
    return [{"index": number, **value} for number, value in numbered]


def _choice(choice: Chunk, reason_of_all: str | None) -> Chunk:
    told = {name: choice.get(name) for name in _PLACES}
    if not choice.get(_REASON):
        places = (choice, *(place for place in told.values() if isinstance(place, dict)))
        reason = next((place[name] for place in places for name in _REASONS if _is_reason(place.get(name))), None)
        choice = {**choice, _REASON: reason or reason_of_all}
    for name, place in told.items():
        if place == []:  # as PHP writes an empty object
            choice = {**choice, name: None}
        elif isinstance(place, dict) and place.keys() - {"content", "role"}:
            choice = {**choice, name: _message(place)}
    if not any(told.values()):
        choice = _without_message(choice)
    return choice


def _is_reason(value: Any) -> bool:
    return bool(value) and isinstance(value, str | dict)


def _message(message: Chunk) -> Chunk:
    """A delta or a message with its text as `content`, and its calls as a list."""
    message = dict(message)
    for name in _REASONS:
        message.pop(name, None)
    if message.get("content") is None and isinstance(message.get("text"), str):
        message["content"] = message.pop("text")
    elif message.get("text") == message.get("content"):
        message.pop("text", None)
    for name in _NAMES_OF_CALLS:
        if message.get(name) and not message.get(_CALLS):
            message[_CALLS] = message.pop(name)
    calls = message.get(_CALLS)
    if isinstance(calls, str) and calls.lstrip().startswith(("[", "{")):
        calls = message[_CALLS] = _parsed(calls)
    if isinstance(calls, dict) and not calls.keys() & {"id", "index", "function", "name"}:
        message[_CALLS] = _by_index(calls)
    return message


def _without_message(choice: Chunk) -> Chunk:
    """A choice that says itself what a message should."""
    messages = choice.get("messages")
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], dict):
        return {name: value for name, value in choice.items() if name != "messages"} | {"message": messages[0]}
    moved = {name: choice[name] for name in ("role", "content", _CALLS, "function_call") if choice.get(name)}
    if not moved.keys() - {"role"}:
        return choice
    return {name: value for name, value in choice.items() if name not in moved} | {
        "message" if choice.get(_REASON) else "delta": moved
    }


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
