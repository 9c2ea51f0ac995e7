"""Globs of the configuration: `*` and `?` within a name, `[…]` for one of some characters, `**` for any directories.

Paths are relative to the directory that is scanned. A pattern without a slash matches names at any depth.
"""

import re
from collections.abc import Iterable
from functools import cache

from kernel.config import ConfigError

_CLASS = re.compile(r"\[!?\]?[^\]/]*\]")


@cache
def _of_name(pattern: str) -> str:
    """The regular expression of a pattern of one name."""
    out, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        found = _CLASS.match(pattern, at) if char == "[" else None
        if found is not None:
            out += _of_class(found.group()[1:-1])
            at = found.end()
            continue
        out += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
        at += 1
    return out


def _of_class(inside: str) -> str:
    """`a-z` or `!a-z` as a set of characters that never holds the slash; ranges are kept."""
    negated = inside.startswith("!")
    body = inside[negated:]
    ranges = re.sub(r"([\[\]\\^&~|])", r"\\\1", body)
    return f"(?!/)[{'^' if negated else ''}{ranges}]"


def _of_path(pattern: str) -> str:
    """The regular expression of a pattern with slashes."""
    out = ""
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part != "**":
            out += _of_name(part) + ("" if last else "/")
        elif last:
            out += "(?s:.+)"  # everything below
        elif parts[number + 1] != "**":
            out += "(?:[^/]+/)*"
    return out


class Globs:
    """Some patterns, of which any may match."""

    def __init__(self, key: str, patterns: Iterable[str]) -> None:
        """Raises `ConfigError` under `key` for a pattern that no path can match."""
        self._patterns = tuple(patterns)
        for pattern in self._patterns:
            _check(key, pattern)
        self._names = _any(key, [_of_name(pattern) for pattern in self._patterns if "/" not in pattern])
        self._paths = _any(key, [_of_path(pattern.lstrip("/")) for pattern in self._patterns if "/" in pattern])

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def match(self, path: str, name: str) -> bool:
        """Whether one of the patterns matches the path below the directory, or its last part, the name."""
        if self._names is not None and self._names.fullmatch(name):
            return True
        return self._paths is not None and self._paths.fullmatch(path) is not None


def _check(key: str, pattern: str) -> None:
    parts = pattern.removeprefix("/").split("/")
    if "" in parts or "." in parts or ".." in parts:
        rule = "is no pattern: name the directory itself, without a slash at the end, an empty part, `.` or `..`"
        raise ConfigError(key, f"{pattern!r} {rule}")


def _any(key: str, expressions: list[str]) -> re.Pattern[str] | None:
    if not expressions:
        return None
    try:
        return re.compile("|".join(f"(?:{expression})" for expression in expressions))
    except re.error as error:
        raise ConfigError(key, f"holds a pattern that cannot be read: {error}") from error
