"""Which paths a JMESPath expression reads: `steps.a.result[0].x` reads `("steps", "a", "result")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_CHAINS: Final = frozenset(
    {
        "subexpression",
        "index_expression",
        "projection",
        "value_projection",
        "filter_projection",
        "flatten",
        "pipe",
    }
)
"""Nodes whose first child reads what the whole expression is given; the others read what the one before them found."""
_ELSEWHERE: Final = frozenset({"expref", "literal", "identity"})
"""Nodes that read nothing of it."""

_Node = Mapping[str, Any]


def paths(node: _Node) -> Iterator[tuple[str, ...]]:
    """The paths of an expression's syntax tree, each as far as it consists of plain names.

    A wildcard, an index or a filter ends a path; the whole of what the expression is given is the empty path.
    """
    kind = node["type"]
    if kind in _ELSEWHERE:
        return
    if kind in _CHAINS or kind in {"field", "current"}:
        first = _first(node)
        if first["type"] in {"field", "current"}:
            yield tuple(_names(node)[0])
        else:
            yield from paths(first)
        return
    for child in node["children"]:
        yield from paths(child)


def _first(node: _Node) -> _Node:
    while node["type"] in _CHAINS:
        node = node["children"][0]
    return node


def _names(node: _Node) -> tuple[list[str], bool]:
    """The names that a chain begins with, and whether what follows it goes on with them."""
    kind = node["type"]
    if kind == "field":
        return [node["value"]], True
    if kind == "current":
        return [], True
    if kind not in _CHAINS:
        return [], False
    if kind != "subexpression":
        return _names(node["children"][0])[0], False
    found: list[str] = []
    for child in node["children"]:
        names, goes_on = _names(child)
        found += names
        if not goes_on:
            return found, False
    return found, True
