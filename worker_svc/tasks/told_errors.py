"""Errors in documents: where endpoints put them, and what they say."""

from __future__ import annotations

import json
from typing import Any, Final

from worker_svc.tasks.json_numbers import whole_number

_SAYS: Final = (
    "message",
    "Message",
    "detail",
    "error",
    "errors",
    "msg",
    "error_message",
    "errorMessage",
    "error_msg",
    "error_description",
    "description",
    "title",
    "reason",
    "err",
    "exception",
    "fault",
    "faultstring",
    "innererror",
)
"""Where an error has its text: `message` as OpenAI writes it, `detail` as FastAPI does, and so on."""
_ONLY_ERRORS: Final = (
    "errors",
    "error_msg",
    "error_message",
    "errorMessage",
    "error_description",
    "err",
    "exception",
    "fault",
)
"""Members that no answer has."""
_NUMBERS: Final = ("error_code", "errorCode", "status_code", "statusCode", "code")
_FIRST_ERROR: Final = 400
_FAILED: Final = frozenset({"error", "failed", "failure"})
_STATUSES: Final = frozenset(range(_FIRST_ERROR, 600))
_SUCCEEDED: Final = frozenset({"ok", "success", "successful", "succeeded"})
_DEEPEST: Final = 8
_MOST: Final = 5


def error_in(document: dict[str, Any], answer: str) -> Any:
    """The error that a document tells; None where it tells none. A document with the member `answer` answers."""
    error = document.get("error")
    if (
        error
        and not _is_success(error)
        and not (isinstance(error, dict) and not any(error.values()) and document.get(answer))
    ):
        # A text has its code beside it.
        return error if isinstance(error, dict) else document
    if isinstance(groq := document.get("x_groq"), dict) and groq.get("error"):
        return groq["error"] if isinstance(groq["error"], dict) else groq
    if document.get("object") == "error" or document.get("type") == "error":
        return document
    if (of_choices := _in_choices(document.get("choices"))) is not None:
        return of_choices
    if (beside := _beside(document)) is not None:
        return beside
    reports = isinstance(document.get(answer), list) and document.get("usage")
    return None if document.get(answer) or reports else _instead_of(document)


def message_of(error: Any, depth: int = 0) -> str:
    """What an error says, for people."""
    if isinstance(error, str):
        return error
    if depth < _DEEPEST and isinstance(error, list) and error:
        return "; ".join(message_of(one, depth + 1) for one in error[:_MOST])
    if depth < _DEEPEST and isinstance(error, dict):
        said = next((error[name] for name in _SAYS if error.get(name)), None)
        if said is not None:
            return f"{_place(error)}{message_of(said, depth + 1)}{_more(error)}"
    return json.dumps(error, ensure_ascii=False)


def _in_choices(choices: Any) -> Any:
    """An error that stands in a choice, in its delta or in its message."""
    for choice in choices if isinstance(choices, list) else ():
        for place in (choice, choice.get("delta"), choice.get("message")) if isinstance(choice, dict) else ():
            if isinstance(place, dict) and place.get("error") and not _is_success(place["error"]):
                return place["error"] if isinstance(place["error"], dict) else {"message": place["error"]}
    return None


def _beside(document: dict[str, Any]) -> Any:
    """An error that is told beside an answer, or without one, by a member that speaks of nothing else."""
    result = document.get("base_resp")
    if isinstance(result, dict) and result.get("status_code"):
        return {"message": result.get("status_msg"), "code": result["status_code"]}
    number = next((code for name in _NUMBERS if (code := whole_number(document.get(name)))), 0)
    if any(document.get(name) for name in _ONLY_ERRORS) or document.get("success") is False:
        return document
    failed = str(document.get("status")).lower() in _FAILED
    return document if failed or (number >= _FIRST_ERROR and not _is_success(document)) else None


def _is_success(told: Any) -> bool:
    """Whether what has the form of an error says that there is none. The status of an error says that there is one."""
    if not isinstance(told, dict):
        return False
    texts = {str(told[name]).strip(" .!").lower() for name in _SAYS if told.get(name)}
    numbers = {whole_number(told.get(name)) for name in _NUMBERS}
    return bool(texts) and texts <= _SUCCEEDED and not numbers & _STATUSES


def _instead_of(document: dict[str, Any]) -> Any:
    """An error that is told instead of an answer, without being called one."""
    said = (document.get("detail"), document.get("errors"), document.get("success") is False)
    texts = (
        document.get(name) for name in ("message", "Message", "msg", "error_msg", "errorMessage", "error_description")
    )
    return document if any(said) or any(isinstance(text, str) and text for text in texts) else None


def _place(error: dict[str, Any]) -> str:
    """`body.messages: `, as FastAPI says where a rule is broken."""
    place = error.get("loc")
    return f"{'.'.join(map(str, place))}: " if isinstance(place, list) and place else ""


def _more(error: dict[str, Any]) -> str:
    """What a gateway was told by the provider behind it."""
    behind = error.get("metadata")
    raw = behind.get("raw") if isinstance(behind, dict) else None
    return f": {message_of(raw, _DEEPEST)}" if raw else ""
