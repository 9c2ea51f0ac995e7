"""Requests to an OpenAI-compatible endpoint: the payload laid over the task's options, and what the protocol wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kernel.handlers import TaskSettings
from worker_svc.tasks.failures import bad_payload

_TEXTS: Final = ("prompt", "input")
_INSTRUCTS: Final = frozenset({"system", "developer"})


def chat_body(payload: Mapping[str, Any], settings: TaskSettings) -> dict[str, Any]:
    """The body of `/chat/completions`. TaskError `VALIDATION_PAYLOAD` where the payload cannot be one.

    `prompt` or `input`, a text, is one message of the user where there are no `messages`; `system` is the system
    message where they have none. `stream` is true and usage is asked for, unless the payload or the options say else.
    """
    body = laid_over(payload, settings)
    system = body.pop("system", None)
    if body.get("messages") is None or "messages" not in payload:
        body["messages"] = _from_text(payload, settings.options)
        for name in _TEXTS:
            body.pop(name, None)
    _check_messages(body["messages"])
    if system is not None:
        body["messages"] = _instructed(system, body["messages"])
    _check_number(body.get("n"))
    _ask_to_stream(body)
    return body


def laid_over(payload: Mapping[str, Any], settings: TaskSettings) -> dict[str, Any]:
    """The members of the payload over those of the options, and the configured model where both name none."""
    if set(payload) == {"_raw"}:
        raise bad_payload("the payload is no JSON object")
    body = {**settings.options, **payload}
    if settings.model and not body.get("model"):
        body["model"] = settings.model
    return body


def model_asked(payload: Mapping[str, Any], settings: TaskSettings) -> str:
    """The model that the body of a payload names, as text; empty for none."""
    model = payload["model"] if "model" in payload else settings.options.get("model")
    if model and not isinstance(model, str):
        model = repr(model)
    return model or settings.model


def _from_text(payload: Mapping[str, Any], options: Mapping[str, Any]) -> list[Any]:
    before = options.get("messages") or []
    found = [place[name] for place in (payload, options) for name in _TEXTS if place.get(name) is not None]
    if found and isinstance(found[0], str) and found[0] and isinstance(before, list):
        return [*before, {"role": "user", "content": found[0]}]
    raise bad_payload("the payload needs `messages`, or a text as `prompt` or `input`")


def _check_number(number: Any) -> None:
    if number is not None and (type(number) is not int or number < 1):
        raise bad_payload("`n` must be a whole number from 1")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise bad_payload("`messages` must be a list of objects, and not empty")


def _instructed(system: Any, messages: list[Any]) -> list[Any]:
    if not isinstance(system, str):
        raise bad_payload("`system` must be a text")
    if not system or any(str(message.get("role")) in _INSTRUCTS for message in messages):
        return messages
    return [{"role": "system", "content": system}, *messages]


def _ask_to_stream(body: dict[str, Any]) -> None:
    stream = body.setdefault("stream", True)
    if not isinstance(stream, bool):
        raise bad_payload("`stream` must be true or false")
    if not stream:
        body.pop("stream_options", None)
    elif body.setdefault("stream_options", {"include_usage": True}) is None:
        del body["stream_options"]  # for an endpoint that does not know them
