"""Patches as text: what is known now, and what the store puts in for `STAMP` and `PLACE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.flows import kinds, values
from kernel.flows.types import Patch


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that make `after` of `before`: those that differ, and None for those that are gone."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in after}


def patch(kind: str, fields: Mapping[str, Any], **given: str | Mapping[str, str]) -> Patch:
    """A patch of `fields`, and behind them what the store gives: times and ids, or what stands for them.

    A placeholder is told from a text that looks like one by its `<`: in all other texts it is escaped.
    """
    known = escaped(fields)
    parts = [known[1:-1]] if fields else []
    parts += [b'"%s":%s' % (name.encode(), _given(value)) for name, value in given.items()]
    return Patch(kinds.RULES[kind].view, kind, b"{%s}" % b",".join(parts))


def escaped(value: Any) -> bytes:
    """The JSON of a value, without any `<`."""
    return values.dump(value).replace(b"<", rb"\u003c")


def _given(value: str | Mapping[str, str]) -> bytes:
    if isinstance(value, str):
        return b'"%s"' % value.encode()
    return b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), _given(text)) for name, text in value.items())
