"""`kernel.redaction` on the text of JSON: what is hidden are strings in it, so that it stays JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final

from kernel import redaction

_MARKS: Final = re.compile("|".join((*map(re.escape, redaction.MARKS), r"\\[u/]")), re.IGNORECASE)
"""In JSON letters and slashes may also be written with a backslash."""
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"?')
"""One that has no end reaches to the end of the text: looking for one behind each of its quotes would take minutes."""

_LONGEST_KNOWN: Final = 64

_known: Final = lru_cache(4096)(redaction.is_secret_name)


def redacted(text: str, spared: AbstractSet[str] = frozenset()) -> str:
    """The text with secrets hidden, byte for byte where it has none.

    Hidden is each string, however deep, under a secret name or beside a `name` that is one, as a header's `value` is;
    in others what `redaction.text` hides. Not hidden are the outermost members in `spared`. What looks as if it held a
    secret, but is no JSON or has a name twice, is hidden whole.
    """
    if not _MARKS.search(text) and not any(_is_secret(found[1]) for found in _STRING.finditer(text)):
        return text
    try:
        held = json.loads(text, object_pairs_hook=_members)
        shown = _shown(held, False, spared)
        return text if shown == held else json.dumps(shown, allow_nan=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        return redaction.HIDDEN


def redacted_bytes(content: bytes) -> bytes:
    """The same for text in UTF-8."""
    try:
        return redacted(content.decode()).encode()
    except UnicodeDecodeError:
        return redaction.HIDDEN.encode()


def _is_secret(name: str) -> bool:
    """Whether it is a secret name; what is long is no name that comes again, and would only take memory."""
    return _known(name) if len(name) <= _LONGEST_KNOWN else redaction.is_secret_name(name)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is there twice, and only one of its values would be seen")
    return members


def _shown(held: Any, secret: bool, spared: AbstractSet[str] = frozenset()) -> Any:
    if isinstance(held, str):
        return redaction.HIDDEN if secret else redaction.text(held)
    if isinstance(held, list):
        return [_shown(item, secret) for item in held]
    if not isinstance(held, dict):
        return held
    header = isinstance(held.get("name"), str) and _is_secret(held["name"])
    return {
        name: value if name in spared else _shown(value, secret or _is_secret(name) or (header and name == "value"))
        for name, value in held.items()
    }
