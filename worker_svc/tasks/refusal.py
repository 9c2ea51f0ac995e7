"""What an endpoint says of its failure: a message fit to be shown, a status, a time to wait."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from kernel import redaction
from kernel.handlers import TaskError, TaskSettings
from worker_svc.fetch.retry_after import retry_after
from worker_svc.tasks import failures
from worker_svc.tasks.documents import parsed, well_formed

_LONGEST_MESSAGE: Final = 500
_LONGEST_READ: Final = 2_000
"""Letters of a message that are looked at: looking takes the square of their number."""
_SHORTEST_SECRET: Final = 8
_HARMLESS: Final = frozenset({"accept", "content-type", "user-agent"})
_KEY: Final = re.compile(r"\bsk-[\w*.-]{4,}")
"""What keys of OpenAI and of many who speak its protocol look like, also half hidden."""
_STATUSES: Final = {
    "api_error": 500,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "internal_server_error": 500,
    "invalid_request_error": 400,
    "overloaded_error": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "service_unavailable": 503,
}
"""The status that an error within a stream would have had as an answer, by its `code` or `type`."""


class Words:
    """Makes an endpoint's words fit for people: one line, not too long, and without what was sent as a credential."""

    def __init__(self, settings: TaskSettings) -> None:
        values = [value for name, value in settings.headers.items() if name.lower() not in _HARMLESS]
        parts = {part for value in (settings.api_key, *values) for part in (value, *value.split())}
        # The longest first: a part may stand in the whole.
        self._secrets = sorted((part for part in parts if len(part) >= _SHORTEST_SECRET), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text as it may be shown."""
        for secret in self._secrets:
            text = text.replace(secret, redaction.HIDDEN)
        text = " ".join(well_formed(text).split())[:_LONGEST_READ]
        text = _KEY.sub(redaction.HIDDEN, redaction.text(text))
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def by_status(number: int, body: bytes, wait: float | None, words: Words) -> TaskError:
    """The failure of an answer whose status is no success. `body` is its beginning."""
    text = f"the endpoint answered {number}"
    if 300 <= number < 400:
        return failures.status(number, f"{text}: redirects are not followed")
    said = words(_said(body))
    return failures.status(number, f"{text}: {said}" if said else text, wait)


def within_stream(error: Any, words: Words) -> TaskError:
    """The failure that an error object tells within an answer that began well."""
    text = f"the endpoint failed within its answer: {words(_message(error))}"
    number = _number(error) if isinstance(error, dict) else None
    return failures.status(number, text) if number else failures.protocol(text)


def wait_asked(headers: Mapping[str, str], now: float, longest: float) -> float | None:
    """The seconds that an answer asks to wait, at most `longest`; `now` is the time since the epoch in seconds."""
    wait = _milliseconds(headers.get("retry-after-ms", ""))
    if wait is None:
        wait = retry_after(headers.get("retry-after", ""), now, headers.get("date", ""))
    return None if wait is None else min(wait, longest)


def _milliseconds(text: str) -> float | None:
    try:
        wait = float(text) / 1000
    except ValueError:
        return None
    return wait if math.isfinite(wait) and wait > 0 else None


def _said(body: bytes) -> str:
    try:
        document = parsed(body)
    except TaskError:
        return body.decode("utf-8", "replace")
    return _message(document.get("error", document) if isinstance(document, dict) else document)


def _message(error: Any) -> str:
    """`message` as OpenAI writes it, `detail` as FastAPI does, or whatever it is."""
    if isinstance(error, dict):
        error = next((error[name] for name in ("message", "detail", "error") if error.get(name)), error)
    return error if isinstance(error, str) else repr(error)


def _number(error: dict[str, Any]) -> int | None:
    for told in (error.get("code"), error.get("status"), error.get("type")):
        text = str(told)
        if text in _STATUSES:
            return _STATUSES[text]
        if text.isascii() and text.isdigit() and 400 <= int(text[:6]) < 600:
            return int(text)
    return None
