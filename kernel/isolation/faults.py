"""What is raised on one side, as the other side knows it.

What a child says is data: of its errors only those that FetchBox knows become what they were, and any other becomes an
error of the same name and text. A child belongs to its service, and so loads what that has pickled.
"""

from __future__ import annotations

import base64
import pickle
import sys
import traceback
from typing import Any, Final

from kernel.errors import FetchboxError, Violation
from kernel.handlers.error_text import describe
from kernel.handlers.handler import TaskError

_NUMBER: Final = "_number"
"""Says which error of the service one is."""


class ChildTraceback(Exception):  # noqa: N818 - never raised: it only shows
    """Shows the traceback of a child as the cause of what is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def told(error: BaseException) -> dict[str, Any]:
    """What a handler has raised in its child, as data."""
    about: dict[str, Any] = {"class": type(error).__name__, "module": type(error).__module__}
    about["traceback"] = "".join(traceback.format_exception(error))
    number = getattr(error, _NUMBER, None)
    if number is not None:
        return {**about, "number": number}
    if isinstance(error, TaskError):
        wait = error.retry_after
        known = min(wait, sys.float_info.max) if isinstance(wait, int | float) and wait >= 0 else None
        code = error.code if isinstance(error.code, str) else repr(error.code)
        return {**about, "code": code, "text": str(error.message), "retry_after": known}
    if isinstance(error, FetchboxError):
        violations = [[one.field, one.description, one.rule] for one in error.violations]
        about |= {"reason": error.reason, "text": error.message, "violations": violations}
        return about | {"retry_after": error.retry_after, "metadata": dict(error.metadata)}
    return {**about, "text": describe(error).partition(": ")[2]}


def heard(about: dict[str, Any], raised: list[BaseException]) -> BaseException:
    """What a child has told: the very error where it is one of those that were `raised` here."""
    number = about.get("number")
    if isinstance(number, int) and 0 <= number < len(raised):
        return raised[number]
    text, wait = str(about.get("text", "")), about.get("retry_after")
    error: BaseException
    if "code" in about:
        error = TaskError(str(about["code"]), text, wait)
    elif "reason" in about:
        violations = tuple(Violation(*map(str, one)) for one in about["violations"])
        error = FetchboxError(about["reason"], text, violations, wait, about["metadata"])
    else:
        kind = type(str(about.get("class", "Exception")), (Exception,), {"__module__": str(about.get("module", ""))})
        error = kind(text) if text else kind()
    error.__cause__ = ChildTraceback(str(about.get("traceback", "")))
    return error


def packed(error: BaseException, raised: list[BaseException]) -> str:
    """What the service has raised, for the handler that asked; it is kept in `raised`."""
    raised.append(error)
    parts = (type(error), error.args, {**error.__dict__, _NUMBER: len(raised) - 1})
    try:
        return base64.b64encode(pickle.dumps(parts)).decode()
    except Exception:  # noqa: BLE001 - whatever cannot be pickled says what it is
        parts = (RuntimeError, (describe(error),), {_NUMBER: len(raised) - 1})
        return base64.b64encode(pickle.dumps(parts)).decode()


def unpacked(text: str) -> BaseException:
    """What `packed` made of an error."""
    kind, args, state = pickle.loads(base64.b64decode(text))  # noqa: S301 - of the service that this process belongs to
    error: BaseException = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
