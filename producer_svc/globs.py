"""Globs of the configuration: `*` and `?` within a name, `[…]` for one of some characters, `**` for any directories.

Paths are relative to the directory that is scanned. A pattern without a slash matches names at any depth.
"""

import re
from collections.abc import Iterable
from functools import cache

from kernel.config.loading import ConfigError

_CLASS = re.compile(r"\[!?\]?[^\]/]*\]")


@cache
def _of_name(pattern: str) -> str:
    """The regular expression of a pattern of one name.

    What stands between two stars is taken where it comes first and never looked for again, so nothing backtracks.
    """
    first, *more = _pieces(pattern)
    if not more:
        return first
    between = "".join(f"(?>[^/]*?{piece})" for piece in filter(None, more[:-1]))
    return f"{first}{between}[^/]*{more[-1]}"


def _pieces(pattern: str) -> list[str]:
    """What stands before, between and behind the stars, as regular expressions of a fixed length."""
    pieces, at = [""], 0
    while at < len(pattern):
        char = pattern[at]
        found = _CLASS.match(pattern, at) if char == "[" else None
        if found is not None:
            pieces[-1] += _of_class(found.group()[1:-1])
            at = found.end()
            continue
        if char == "*":
            pieces.append("")
        else:
            pieces[-1] += "[^/]" if char == "?" else re.escape(char)
        at += 1
    return pieces


def _of_class(inside: str) -> str:
    """`a-z` or `!a-z` as a set of characters that never holds the slash; ranges are kept."""
    negated = inside.startswith("!")
    body = inside[negated:]
    ranges = re.sub(r"([\[\]\\^&~|])", r"\\\1", body)
    return f"(?!/)[{'^' if negated else ''}{ranges}]"


def _of_path(pattern: str) -> str:
    """The regular expression of a pattern with slashes; parts between two `**` are taken where they come first."""
    runs: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_of_name(part))
    first, *more = runs
    if not more:
        return "/".join(first)
    before = "".join(f"{part}/" for part in first)
    between = "".join(f"(?>(?:[^/]+/)*?{'/'.join(run)}/)" for run in filter(None, more[:-1]))
    last = f"(?:[^/]+/)*{'/'.join(more[-1])}" if more[-1] else "(?s:.+)"  # or everything below
    return f"{before}{between}{last}"


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
