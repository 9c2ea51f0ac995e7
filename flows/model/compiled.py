"""Checks of JSON values, compiled from message descriptors and their protovalidate rules.

They take what ProtoJSON takes for these messages and say what protovalidate says, without making a message: a log line
is checked in a few microseconds. They are stricter in three points: a key counts only in its JSON name, a whole number
must be a JSON number without a fraction, and null is no value. Keys that a message does not have are free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from buf.validate import validate_pb2
from kernel.errors import Violation
from kernel.validation import violations

Broken: TypeAlias = Sequence[Violation]
Check: TypeAlias = Callable[[Any], Broken]
"""What is wrong with a value; the paths of its violations begin below it."""

_FINE: Final[Broken] = ()
_WHOLE: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
}
_PREDICATES: Final[dict[str, Callable[[Any], tuple[Callable[[Any], bool], str]]]] = {
    "pattern": lambda bound: (_full_match(bound), f"must match regex pattern `{bound}`"),
    "in": lambda bound: (frozenset(bound).__contains__, f"must be in list [{', '.join(bound)}]"),
    "max_len": lambda bound: (lambda value: len(value) <= bound, f"must be at most {bound} characters"),
    "const": lambda bound: (lambda value: bool(value == bound), f"must equal {bound}"),
    "gte": lambda bound: (lambda value: bool(value >= bound), f"must be greater than or equal to {bound}"),
    "max_items": lambda bound: (lambda value: len(value) <= bound, f"must contain no more than {bound} item(s)"),
}
"""The rules that are known here. Another one in a proto is an error at import, not a check that is left out."""


def _full_match(pattern: str) -> Callable[[Any], bool]:
    expression = re.compile(pattern)
    return lambda value: expression.fullmatch(value) is not None


def compiled(descriptor: Descriptor) -> Check:
    """The check of a JSON object that is read as a message. ValueError for a rule or type that is not known here."""
    fields = [_field(field) for field in descriptor.fields]
    expressions = _expressions(descriptor)

    def check(value: Any) -> Broken:
        if not isinstance(value, dict):
            return [Violation("", "must be an object", "type")]
        broken: list[Violation] = []
        for name, part, absent in fields:
            found = value.get(name)
            if wrong := absent if found is None else part(found):
                broken += below(name, wrong)
        return broken or expressions(value)

    return check


def below(name: str, broken: Broken) -> Iterator[Violation]:
    """The violations of a value as those of what holds it under a name."""
    for violation in broken:
        inner = violation.field
        path = f"{name}.{inner}" if inner and not inner.startswith("[") else name + inner
        yield Violation(path, violation.description, violation.rule)


def _expressions(descriptor: Descriptor) -> Check:
    """What the CEL expressions of a message say. They are few, and protovalidate itself reads them."""
    options = descriptor.GetOptions().Extensions[validate_pb2.message]
    _require_known(descriptor.full_name, options, {"cel"})
    if not options.cel:
        return lambda _value: _FINE
    names = frozenset(field.json_name for field in descriptor.fields)
    make = GetMessageClass(descriptor)

    def check(value: Any) -> Broken:
        known = {name: item for name, item in value.items() if name in names}
        return violations(json_format.ParseDict(known, make()))

    return check


def _field(field: FieldDescriptor) -> tuple[str, Check, Broken]:
    """JSON name, the check of a value, and what is wrong where there is none."""
    rules = field.GetOptions().Extensions[validate_pb2.field]
    check = _values(field, rules)
    if rules.required:
        absent: Broken = [Violation("", "value is required", "required")]
        if not field.has_presence:
            check = _not(field.default_value, absent, check)
    elif field.has_presence or field.is_repeated:
        absent = _FINE
    else:
        absent = check(field.default_value)
    return field.json_name, check, absent


def _not(empty: Any, absent: Broken, check: Check) -> Check:
    """A check for which the empty value of its type counts as absent."""
    return lambda value: absent if type(value) is type(empty) and value == empty else check(value)


def _values(field: FieldDescriptor, rules: validate_pb2.FieldRules) -> Check:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        _require_known(field.full_name, rules, set())
        return _map(_values(entry.fields_by_name["value"], validate_pb2.FieldRules()))
    if field.is_repeated:
        _require_known(field.full_name, rules, {"repeated"})
        _require_known(field.full_name, rules.repeated, {"max_items", "items"})
        tests = [_test(name, bound) for name, bound in _bounds(rules.repeated) if name != "items"]
        return _list(_single(field, rules.repeated.items), tests)
    return _single(field, rules)


def _single(field: FieldDescriptor, rules: validate_pb2.FieldRules) -> Check:
    if field.message_type is not None:
        _require_known(field.full_name, rules, {"required"})
        return _message(field.message_type)
    kind = {FieldDescriptor.CPPTYPE_INT32: "int32", FieldDescriptor.CPPTYPE_INT64: "int64"}.get(
        field.cpp_type, "string"
    )
    _require_known(field.full_name, rules, {"required", kind})
    tests = [_test(f"{kind}.{name}", bound) for name, bound in _bounds(getattr(rules, kind))]
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _typed(bool, "must be true or false", [])
    if field.type == FieldDescriptor.TYPE_STRING:
        return _typed(str, "must be a string", tests)
    if field.cpp_type not in _WHOLE:
        raise ValueError(f"{field.full_name}: its type is not known here")
    lowest, highest = _WHOLE[field.cpp_type]
    within = ((lambda value: lowest <= value <= highest), f"must be from {lowest} to {highest}", f"{kind}.range")
    return _typed(int, "must be a whole number", [within, *tests])


def _message(descriptor: Descriptor) -> Check:
    if descriptor.full_name == "google.protobuf.Value":
        return lambda _value: _FINE
    if descriptor.full_name == "google.protobuf.Struct":
        return _typed(dict, "must be an object", [])
    return compiled(descriptor)


_Test: TypeAlias = tuple[Callable[[Any], bool], str, str]


def _test(rule: str, bound: Any) -> _Test:
    holds, told = _PREDICATES[rule.rpartition(".")[2]](bound)
    return holds, told, rule


def _typed(kind: type, told: str, tests: list[_Test]) -> Check:
    """Values of one JSON type that pass tests; the types of Python tell true from 1."""

    def check(value: Any) -> Broken:
        if type(value) is not kind:
            return [Violation("", told, "type")]
        for holds, description, rule in tests:
            if not holds(value):
                return [Violation("", description, rule)]
        return _FINE

    return check


def _list(item: Check, tests: list[_Test]) -> Check:
    whole = _typed(list, "must be a list", tests)

    def check(value: Any) -> Broken:
        if wrong := whole(value):
            return wrong
        return [found for index, part in enumerate(value) for found in below(f"[{index}]", item(part))]

    return check


def _map(item: Check) -> Check:
    def check(value: Any) -> Broken:
        if not isinstance(value, dict):
            return [Violation("", "must be an object", "type")]
        return [found for key, part in value.items() for found in below(key, item(part))]

    return check


def _bounds(rules: Message) -> Iterator[tuple[str, Any]]:
    for field, bound in rules.ListFields():
        if field.name not in {*_PREDICATES, "items"}:
            raise ValueError(f"the rule {field.full_name} is not known here")
        yield field.name, bound


def _require_known(where: str, rules: Message, known: set[str]) -> None:
    unknown = sorted({field.name for field, _ in rules.ListFields()} - known)
    if unknown:
        raise ValueError(f"{where}: its rules {unknown} are not known here")
