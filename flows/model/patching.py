"""Patches as text: what is known now, and what the store puts in for `STAMP` and `PLACE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.model import kinds, values
from flows.model.types import Patch


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that make `after` of `before`: those that differ, and None for those that are gone."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in after}


def patch(kind: str, fields: Mapping[str, Any], given: bytes) -> Patch:
    """A patch of `fields`, and behind them the members that the store gives: times and ids, or what stands for them.

    A placeholder is told from a text that looks like one by its `<`: in all other texts it is escaped.
    """
    known = values.dump(fields)
    if b"<" in known:
        known = known.replace(b"<", rb"\u003c")
    separator = b"," if fields else b""
    return Patch(kinds.RULES[kind].view, kind, known[:-1] + separator + given + b"}")
