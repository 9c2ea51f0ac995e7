"""How a log line looks: JSON for machines, coloured text for a terminal."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import orjson

Field: TypeAlias = str | int | float | bool | BaseException | Sequence[str] | None
"""What a field of a log line may hold. Bytes are not among them: payloads stay out."""

_LONGEST: Final = 2048
_LONGEST_STACK: Final = 16384
_URL: Final = re.compile(r"https?://[^\x00-\x20\"<>]+")
_COLOURS: Final = {"debug": "\x1b[2m", "info": "\x1b[32m", "warn": "\x1b[33m", "error": "\x1b[31m"}
_RESET: Final = "\x1b[0m"


def redact_url(url: str) -> str:
    """The URL without user, password, query and fragment: signed query parameters are secrets."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(unreadable URL)"
    return urlunsplit((parts.scheme, host, parts.path, "…" if parts.query else "", ""))


def redact(text: str, longest: int = _LONGEST) -> str:
    """The text with every URL in it redacted, and no longer than `longest` characters."""
    safe = _URL.sub(lambda match: redact_url(match.group()), text) if "://" in text else text
    return safe if len(safe) <= longest else f"{safe[:longest]}…"


def plain(value: Field) -> str | int | float | bool | list[str] | None:
    """A field's value as JSON can hold it, redacted."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, BaseException):
        return redact(f"{type(value).__name__}: {value}")
    return [redact(str(item)) for item in value]


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
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, service, logger, event, then the fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, object] = {
            "ts": _time(record),
            "level": level_name(record),
            "service": self._service,
            "logger": record.name.removeprefix("fetchbox."),
            "event": redact(record.getMessage()),
        }
        for name, value in _fields(record).items():
            # A field never replaces the frame of the line: `service` as a field is the service that was called.
            line[name if name not in line else f"{name}_"] = plain(value)
        if record.exc_info:
            line["stack"] = redact(self.formatException(record.exc_info), _LONGEST_STACK)
        return orjson.dumps(line, default=str).decode()


class ConsoleFormatter(logging.Formatter):
    """The same facts for people: time, level, event, fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, and its stack below it."""
        level = level_name(record)
        fields = " ".join(f"{name}={plain(value)}" for name, value in _fields(record).items())
        head = f"{_time(record)[11:-1]} {_COLOURS[level]}{level:5}{_RESET} {self._service}"
        line = f"{head} {redact(record.getMessage())} {fields}".rstrip()
        return f"{line}\n{redact(self.formatException(record.exc_info), _LONGEST_STACK)}" if record.exc_info else line
