"""Members of chunks that FetchBox has no use of: kept under their names, those of many chunks as one value."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from worker_svc.tasks.documents import well_formed

_WORDS: Final = frozenset({"channel", "format", "id", "model", "name", "object", "role", "status", "type"})
"""Texts of a delta that are told anew in each, and not continued."""


class KeptMembers:
    """Values by name. Null says nothing and is not kept."""

    def __init__(self, *, joins: bool, series: bool = False) -> None:
        """`joins`: texts and lists go on in the next chunk, as those of a delta do; else the last value holds.

        `series`: a list never repeats what is kept, even where it is the same.
        """
        self._joins = joins
        self._series = series
        self._values: dict[str, Any] = {}

    def take(self, members: Mapping[str, Any], known: Collection[str], *, whole: bool = False) -> int:
        """Takes the members that are not `known`; returns about how many bytes more are kept where texts go on.

        `whole`: a text that begins with what is kept holds all of it.
        """
        size = 0
        for name, value in members.items():
            if value is not None and name not in known:
                size += _size(value) if self._joins else 0
                if whole and _goes_over(self._values.get(name), value):
                    del self._values[name]
                _take(self._values, well_formed(name), value, joins=self._joins, series=self._series)
        return size

    def result(self) -> dict[str, Any]:
        """The members."""
        return {name: _whole(value) for name, value in self._values.items()}


class _Pieces(list[str]):
    """A text that goes on: joined once, at the end."""

    def __init__(self, first: str) -> None:
        super().__init__((first,))
        self.letters = len(first)

    def go_on(self, more: str) -> None:
        """Takes the next piece."""
        self.append(more)
        self.letters += len(more)


def _goes_over(old: Any, new: Any) -> bool:
    if not (isinstance(old, _Pieces) and isinstance(new, str)) or len(new) < old.letters:
        return False
    return new.startswith("".join(old))


def _take(values: dict[str, Any], name: str, new: Any, *, joins: bool, series: bool) -> None:
    old = values.get(name)
    if isinstance(new, dict):
        held = old if isinstance(old, dict) else {}
        for key, value in new.items():
            if value is None:
                held.setdefault(well_formed(key), None)
            else:
                _take(held, well_formed(key), value, joins=joins, series=series)
        values[name] = held
    elif joins and isinstance(new, str) and not (name in _WORDS or name.endswith("_id")):
        if isinstance(old, _Pieces):
            old.go_on(new)
        else:
            values[name] = _Pieces(new)
    elif joins and isinstance(new, list) and type(old) is list:
        repeated = not series and len(new) >= len(old) and new[: len(old)] == old
        old.extend(new[len(old) :] if repeated else new)
    else:
        values[name] = list(new) if isinstance(new, list) else new


def _whole(value: Any) -> Any:
    """The value with its texts joined, as JSON can hold it: no half surrogate pair, no infinite number."""
    if isinstance(value, _Pieces):
        value = "".join(value)
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {well_formed(name): _whole(one) for name, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    if isinstance(value, dict):
        return sum(len(name) + _size(one) for name, one in value.items())
    return 8
