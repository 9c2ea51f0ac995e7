"""JSON as people give it: the text, `@file` or `-`; what is wrong with it is said before it is sent."""

import json
import sys
from pathlib import Path
from typing import Any

from cli.problems import USAGE, CommandError
from cli.settings import Settings

_PLAIN_BYTES = 204_800
"""What `tasks.max_payload_bytes` is by default: no configuration is read for a payload below it."""
_PAYLOAD_HINT = """A payload is an object: '{"prompt": "Hello"}', @file.json, or - for stdin."""
_VALUE_HINT = """Give JSON: '{"order": 7}', @file.json, or - for stdin; a text stands in quotes: '"text"'."""
_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


def read_payload(text: str, options: Settings) -> bytes:
    """The bytes to send, a JSON object. Raises a CommandError that names the place of what is wrong."""
    where, payload = _bytes_of(text, "--payload")
    _check_size(where, len(payload), options)
    value = _parsed(where, payload, _PAYLOAD_HINT)
    if not isinstance(value, dict):
        told = f"{where}: must be a JSON object, not {_KINDS[type(value)]}"
        raise CommandError(told, USAGE, hint=_PAYLOAD_HINT)
    return payload


def read_value(text: str, option: str) -> bytes:
    """The bytes of any JSON value. Raises a CommandError that names the place of what is wrong."""
    where, value = _bytes_of(text, option)
    _parsed(where, value, _VALUE_HINT)
    return value


def _bytes_of(text: str, option: str) -> tuple[str, bytes]:
    """What to call the JSON in an error, and its bytes."""
    if text == "-":
        return "stdin", sys.stdin.buffer.read()
    if not text.startswith("@"):
        return option, text.encode()
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


def _parsed(where: str, text: bytes, hint: str) -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        wrong = f"{where}: is no text in UTF-8: byte {error.start + 1}"
    except json.JSONDecodeError as error:
        wrong = f"{where}:{error.lineno}:{error.colno}: is no JSON: {error.msg}"
    except RecursionError:
        wrong = f"{where}: is nested too deeply"
    except ValueError as error:
        wrong = f"{where}: is no JSON: {error}"
    raise CommandError(wrong, USAGE, hint=hint)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not allowed")
