"""How many members the lists and maps of a message may have, by the protovalidate rules of its proto.

protovalidate looks at each member of a list even where there are too many, and takes 25 microseconds for each that is
wrong: a message of 10 MB would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from buf.validate import validate_pb2
from kernel.errors import Violation


class _Bounded(NamedTuple):
    """A field that has a bound, or leads to one."""

    field: FieldDescriptor
    most: int
    """The most members; -1 for any number."""
    rule: str
    inner: bool
    """Whether a message in it has a bound, or leads to one."""


def oversized(message: Message, path: str = "") -> Iterator[Violation]:
    """The lists and maps with too many members, each with its path."""
    for field, most, rule, inner in _bounded(message.DESCRIPTOR):
        held = getattr(message, field.name)
        place = f"{path}{field.name}"
        if 0 <= most < (len(held) if field.is_repeated else 0):
            noun = (
                "map must be at most {} entries" if rule == "map.max_pairs" else "must contain no more than {} item(s)"
            )
            yield Violation(place, noun.format(most), rule)
        elif inner and field.is_repeated:
            for index, one in _members(field, held):
                yield from oversized(one, f"{place}[{index}].")
        elif inner and message.HasField(field.name):
            yield from oversized(held, f"{place}.")


def _members(field: FieldDescriptor, held: Any) -> Iterable[tuple[Any, Message]]:
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    return held.items() if is_map else enumerate(held)


@lru_cache(512)
def _bounded(descriptor: Descriptor) -> tuple[_Bounded, ...]:
    found = (_bound(field, frozenset({descriptor.full_name})) for field in descriptor.fields)
    return tuple(one for one in found if one.most >= 0 or one.inner)


def _bound(field: FieldDescriptor, above: frozenset[str]) -> _Bounded:
    rules: validate_pb2.FieldRules = field.GetOptions().Extensions[validate_pb2.field]
    most, rule = -1, ""
    if rules.repeated.HasField("max_items"):
        most, rule = rules.repeated.max_items, "repeated.max_items"
    elif rules.map.HasField("max_pairs"):
        most, rule = rules.map.max_pairs, "map.max_pairs"
    return _Bounded(field, most, rule, _leads_to_bounds(field, above))


def _leads_to_bounds(field: FieldDescriptor, above: frozenset[str]) -> bool:
    held = field.message_type
    if held is not None and held.GetOptions().map_entry:
        held = held.fields_by_name["value"].message_type
    if held is None or held.full_name in above:
        return False
    inner = (_bound(one, above | {held.full_name}) for one in held.fields)
    return any(one.most >= 0 or one.inner for one in inner)
