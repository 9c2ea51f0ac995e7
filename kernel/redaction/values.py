"""JSON without secrets, as a value and as text: what is hidden are values under secret names, so that it stays JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kernel.redaction.names import is_count, is_secret_name
from kernel.redaction.shapes import HIDDEN
from kernel.redaction.texts import is_marked, text

_ESCAPED: Final = re.compile(r"\\[u/]")
"""In JSON letters and slashes may also be written with a backslash."""
_NOTHING: Final[AbstractSet[str]] = frozenset()


def json_text(held: str, spared: AbstractSet[str] = _NOTHING) -> str:
    """The text of JSON with secrets hidden, byte for byte where it has none.

    Not hidden are the outermost members in `spared`. What looks as if it held a secret, but is no JSON or has a name
    twice, is hidden whole.
    """
    if not is_marked(held) and not _ESCAPED.search(held):
        return held
    try:
        value = json.loads(held, object_pairs_hook=_members)
        shown = json_value(value, spared)
        return held if shown == value else json.dumps(shown, allow_nan=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        return HIDDEN


def json_bytes(content: bytes) -> bytes:
    """The same for text in UTF-8."""
    try:
        return json_text(content.decode()).encode()
    except UnicodeDecodeError:
        return HIDDEN.encode()


def json_value(held: Any, spared: AbstractSet[str] = _NOTHING) -> Any:
    """The value with its secrets hidden.

    Hidden is each text and number under a secret name, however deep, or beside a `name` that is one, as a header's
    `value` is; in other texts what `text` hides.
    """
    return _shown(held, "", spared)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is there twice, and only one of its values would be seen")
    return members


def _shown(held: Any, secret: str, spared: AbstractSet[str] = _NOTHING) -> Any:
    """`secret`: the secret name that it stands under, if it does."""
    if isinstance(held, str):
        return HIDDEN if secret and held else text(held)
    if isinstance(held, list):
        return [_shown(item, secret) for item in held]
    if isinstance(held, int | float) and not isinstance(held, bool):
        return HIDDEN if secret and not is_count(secret, "0") else held
    if not isinstance(held, dict):
        return held
    header = held.get("name")
    named = header if isinstance(header, str) and is_secret_name(header) else ""
    return {
        name: value if name in spared else _shown(value, _under(name, secret, named)) for name, value in held.items()
    }


def _under(name: str, secret: str, named: str) -> str:
    if is_secret_name(name):
        return name
    return secret or (named if name == "value" else "")
