"""What an endpoint says of its failure, as the failure of a task: a message fit to be shown, and a status."""

from __future__ import annotations

from typing import Any, Final

from kernel import redaction
from kernel.handlers import TaskError, TaskSettings
from worker_svc.tasks import failures
from worker_svc.tasks.documents import in_any_charset, parsed, well_formed
from worker_svc.tasks.error_statuses import names_the_account, names_the_caller, status_of
from worker_svc.tasks.told_errors import error_in, message_of
from worker_svc.tasks.waits import wait_told
from worker_svc.tasks.wide_text import narrowed

_LONGEST_MESSAGE: Final = 500
_LONGEST_READ: Final = 2_000
"""Letters of a message that are looked at: looking takes the square of their number."""
_SHORTEST_SECRET: Final = 8
_HARMLESS: Final = frozenset({"accept", "content-type", "user-agent"})
_SERVER: Final = 500
_OF_THE_SERVER: Final = {424: 502, 498: 503, 499: 503}
"""Statuses below 500 that say that the server failed: in its generation (TGI), out of capacity (Groq), cancelled."""


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
        text = redaction.text(text)
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def error_of_body(body: bytes) -> Any:
    """What the body of a refusal tells: a value of JSON, or a text."""
    text = in_any_charset(_narrowed(body))
    try:
        document = parsed(text)
    except TaskError:
        return text
    if isinstance(document, list) and len(document) == 1:
        document = document[0]  # as Gemini tells it
    if isinstance(document, dict):
        found = error_in(document, "")
        return document if found is None else found
    return document


def _narrowed(body: bytes) -> bytes:
    """The body in UTF-8; as it is where it is cut within a letter."""
    try:
        return narrowed(body)
    except TaskError:
        return body


def by_status(number: int, error: Any, wait: float | None, words: Words) -> TaskError:
    """The failure of an answer whose status is no success, and whose body tells an error."""
    text = f"the endpoint answered {number}"
    if 300 <= number < 400:
        return failures.status(number, f"{text}: redirects are not followed")
    said = words(message_of(error))
    number = _OF_THE_SERVER.get(number, number)
    if number >= _SERVER:
        number = names_the_caller(error) or number
    if (closed := names_the_account(error)) is not None:
        number, wait = closed, None
    return failures.status(number, f"{text}: {said}" if said else text, wait)


def within_answer(error: Any, words: Words, longest_wait: float) -> TaskError:
    """The failure that an error tells within an answer that began well."""
    text = f"the endpoint failed within its answer: {words(message_of(error))}"
    number = names_the_account(error) or status_of(error)
    if number is None:
        return failures.protocol(text)
    wait = wait_told(error)
    return failures.status(number, text, None if wait is None else min(wait, longest_wait))
