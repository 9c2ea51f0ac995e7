"""How a log line looks: JSON for machines, coloured text for a terminal."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Final, TypeAlias

import orjson

from kernel import redaction
from kernel.foreign_text import visible
from kernel.rooms import inside
from kernel.telemetry import context, tracing

Field: TypeAlias = str | int | float | bool | BaseException | Sequence[str] | None
"""What a field of a log line may hold. Bytes are not among them: payloads stay out."""

_LONGEST: Final = 2048
_LONGEST_STACK: Final = 16384
_URL: Final = re.compile(r"https?://[^\x00-\x20\"<>]+")
_MAIL: Final = re.compile(r"[A-Za-z0-9._%+-]{1,64}(?:@|%40)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+", re.IGNORECASE)
_HARMLESS: Final = re.compile(r"[a-z_]{0,23}|[a-z0-9]{0,15}|[0-9a-f-]{0,36}")
"""Words and UUIDs: too short, or of too few characters, for anything that is hidden. Most fields are such."""
_TOLD: Final = frozenset(
    {"flows", "kernel", "gateway", "ingest_svc", "operator_svc", "producer_svc", "worker_svc", "redis"}
)
"""Where the errors are made whose texts are ours to tell. Those of others may quote what they were given."""
_OURS: Final = "fetchbox"
_COLOURS: Final = {"debug": "\x1b[2m", "info": "\x1b[32m", "warn": "\x1b[33m", "error": "\x1b[31m"}
_RESET: Final = "\x1b[0m"


def redact(text: str, longest: int = _LONGEST) -> str:
    """The text without what URLs hide, without credentials and mail addresses; cut behind `longest` characters.

    What a terminal would obey, or UTF-8 cannot hold, is shown as an escape.
    """
    if _HARMLESS.fullmatch(text):
        return text
    safe = _URL.sub(lambda match: redaction.bare_url(match.group()), text) if "://" in text else text
    safe = redaction.text(safe)
    if "@" in safe or "%40" in safe:
        safe = _MAIL.sub(redaction.HIDDEN, safe)
    return visible(safe if len(safe) <= longest else f"{safe[:longest]}…")


def field(name: str, value: Field) -> str | int | float | bool | list[str] | None:
    """The value of a field as JSON can hold it: hidden whole under a secret name, else redacted."""
    is_secret = value and not isinstance(value, bool | int | float) and redaction.is_secret_name(name)
    return redaction.HIDDEN if is_secret else plain(value)


def plain(value: Field) -> str | int | float | bool | list[str] | None:
    """A field's value as JSON can hold it, redacted."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, BaseException):
        return redact(error_text(value))
    return [redact(str(item)) for item in value]


def error_text(error: BaseException) -> str:
    """The type of an error, and its text where that is ours to tell: any other may quote a payload."""
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name}: {'; '.join(map(error_text, error.exceptions))}"
    told = isinstance(error, OSError) or inside(type(error).__module__).partition(".")[0] in _TOLD
    text = str(error) if told else ""
    return f"{name}: {text}" if text else name


def stack_text(error: BaseException, trace: TracebackType | None = None) -> str:
    """Where an error was raised, and what it was in the words of `error_text`; its causes first."""
    parts = []
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        parts.append(stack_text(before))
    frames = traceback.format_tb(trace or error.__traceback__)
    parts.append(f"Traceback (most recent call last):\n{''.join(frames)}{error_text(error)}")
    return "\n\n".join(parts)


def level_name(record: logging.LogRecord) -> str:
    """The level in our words: `debug`, `info`, `warn` or `error`."""
    if record.levelno >= logging.ERROR:
        return "error"
    if record.levelno >= logging.WARNING:
        return "warn"
    return "info" if record.levelno >= logging.INFO else "debug"


def _fields(record: logging.LogRecord) -> Mapping[str, Field]:
    fields: Mapping[str, Field] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    second, fraction = divmod(record.created, 1)
    return f"{_second(int(second))}.{int(fraction * 1000):03d}Z"


@lru_cache(2)  # lines come many a second
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _message(record: logging.LogRecord) -> str:
    """What happened. Libraries tell it in their first line; what follows may quote what they were given."""
    text = record.getMessage()
    return redact(text if record.name.startswith(_OURS) else text.partition("\n")[0])


def _stack(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    return redact(stack_text(record.exc_info[1], record.exc_info[2]), _LONGEST_STACK)


def _one_line(value: object) -> str:
    """The value without line feeds: text of others begins no line of its own."""
    return str(value).replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, msg, service, logger, namespace, what the work is about, then the fields."""

    def __init__(self, service: str, namespace: str = "") -> None:
        super().__init__()
        self._service = service
        self._namespace = namespace

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, object] = {
            "ts": _time(record),
            "level": level_name(record),
            "msg": _message(record),
            "service": self._service,
            "logger": record.name.removeprefix("fetchbox."),
            "namespace": self._namespace,
        }
        frame = frozenset(line)
        line.update(tracing.current_ids())
        line.update(context.facts())
        for name, value in _fields(record).items():
            # A field never replaces the frame of the line: `service` as a field is the service that was called.
            line[name if name not in frame else f"{name}_"] = field(name, value)
        if stack := _stack(record):
            line["stack"] = stack
        return _json(line)


def _json(line: dict[str, object]) -> str:
    """The line, whatever it holds: a number of more than 64 bits, or text that UTF-8 cannot hold, loses no line."""
    try:
        return orjson.dumps(line, default=str).decode()
    except TypeError:
        return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    """The same facts for people: time, level, event, fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, and its stack below it."""
        level = level_name(record)
        fields = " ".join(f"{name}={_one_line(field(name, value))}" for name, value in _fields(record).items())
        head = f"{_time(record)[11:-1]} {_COLOURS[level]}{level:5}{_RESET} {self._service}"
        line = f"{head} {_one_line(_message(record))} {fields}".rstrip()
        stack = _stack(record)
        return f"{line}\n{stack}" if stack else line
