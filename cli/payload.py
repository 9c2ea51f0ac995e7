"""The payload of a task as people give it: JSON, `@file` or `-`; what is wrong with it is said before it is sent."""

import json
import sys
from pathlib import Path

from cli.problems import USAGE, CommandError
from cli.settings import Settings

_PLAIN_BYTES = 204_800
"""What `tasks.max_payload_bytes` is by default: no configuration is read for a payload below it."""


def read_payload(text: str, options: Settings) -> bytes:
    """The bytes to send, a JSON object. Raises a CommandError that names the place of what is wrong."""
    where, payload = _bytes_of(text)
    _check_size(where, len(payload), options)
    _check_object(where, payload)
    return payload


def _bytes_of(text: str) -> tuple[str, bytes]:
    """What to call the payload in an error, and its bytes."""
    if text == "-":
        return "stdin", sys.stdin.buffer.read()
    if not text.startswith("@"):
        return "--payload", text.encode()
    path = Path(text[1:])
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", USAGE) from error


def _check_size(where: str, size: int, options: Settings) -> None:
    if size <= _PLAIN_BYTES:
        return
    limit = options.load().tasks.max_payload_bytes
    if size > limit:
        raise CommandError(
            f"{where}: has {size} bytes, and at most {limit} are allowed (tasks.max_payload_bytes)",
            USAGE,
            hint="Make it smaller, or name the configuration with a higher limit: --config FILE.",
        )


def _check_object(where: str, payload: bytes) -> None:
    try:
        value = json.loads(payload.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise _no_payload(f"{where}: is no text in UTF-8: byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        raise _no_payload(f"{where}:{error.lineno}:{error.colno}: is no JSON: {error.msg}") from error
    except RecursionError as error:
        raise _no_payload(f"{where}: is nested too deeply") from error
    except ValueError as error:
        raise _no_payload(f"{where}: is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise _no_payload(f"{where}: must be a JSON object, not {_KINDS[type(value)]}")


_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not allowed")


def _no_payload(message: str) -> CommandError:
    return CommandError(
        message, USAGE, hint="""A payload is an object: '{"prompt": "Hello"}', @file.json, or - for stdin."""
    )
