"""The rules of protovalidate as keywords of JSON Schema.

What JSON Schema cannot say (lengths in bytes, CEL expressions, durations) is left to the description.
"""

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from buf.validate import validate_pb2

Schema = dict[str, Any]

_NUMBERS: Mapping[str, str] = {
    "gte": "minimum",
    "gt": "exclusiveMinimum",
    "lte": "maximum",
    "lt": "exclusiveMaximum",
    "const": "const",
}
_NUMERIC = frozenset({"float", "double", "int32", "uint32", "sint32", "fixed32", "sfixed32"})
"""Kinds that JSON prints as numbers; those of 64 bits are strings there, which have no minimum."""


def rules_of(field: FieldDescriptor) -> validate_pb2.FieldRules:
    """The rules of a field."""
    rules: validate_pb2.FieldRules = field.GetOptions().Extensions[validate_pb2.field]
    return rules


def constrain(schema: Schema, rules: validate_pb2.FieldRules) -> Schema:
    """`schema` with the keywords of `rules`; where a rule is skipped for zero values, these stay allowed."""
    keywords = _keywords(rules)
    if not keywords:
        return schema
    if rules.ignore != validate_pb2.IGNORE_IF_ZERO_VALUE:
        return schema | keywords
    return {"anyOf": [schema | keywords, {"const": "" if rules.WhichOneof("type") == "string" else 0}]}


def refuses_absence(field: FieldDescriptor) -> bool:
    """Whether a message without the field is refused."""
    rules = rules_of(field)
    if rules.required:
        return True
    if field.has_presence or rules.ignore == validate_pb2.IGNORE_IF_ZERO_VALUE:
        return False
    return _refuses_zero(_keywords(rules))


def _refuses_zero(keywords: Schema) -> bool:
    return (
        keywords.get("minLength", 0) > 0
        or keywords.get("minItems", 0) > 0
        or keywords.get("minProperties", 0) > 0
        or keywords.get("minimum", 0) > 0
        or keywords.get("exclusiveMinimum", -1) >= 0
        or bool(keywords.get("const", None))
        or ("enum" in keywords and not {"", 0} & set(keywords["enum"]))
        or ("pattern" in keywords and re.search(keywords["pattern"], "") is None)
    )


def _keywords(rules: validate_pb2.FieldRules) -> Schema:
    kind = rules.WhichOneof("type")
    if kind == "string":
        return _of_string(rules.string)
    if kind == "repeated":
        return _of_repeated(rules.repeated)
    if kind == "map":
        return _of_map(rules.map)
    if kind in _NUMERIC:
        found = getattr(rules, kind)
        keywords: Schema = {word: getattr(found, name) for name, word in _NUMBERS.items() if found.HasField(name)}
        return keywords | ({"enum": list(vars_in)} if (vars_in := getattr(found, "in")) else {})
    return {}


def _of_string(rules: validate_pb2.StringRules) -> Schema:
    keywords: Schema = {}
    for name, word in (("const", "const"), ("min_len", "minLength"), ("max_len", "maxLength"), ("pattern", "pattern")):
        if rules.HasField(name):  # type: ignore[arg-type]  # the stub wants a literal
            keywords[word] = getattr(rules, name)
    if choices := list(getattr(rules, "in")):
        keywords["enum"] = choices
    if rules.not_in:
        keywords["not"] = {"enum": list(rules.not_in)}
    return keywords


def _of_repeated(rules: validate_pb2.RepeatedRules) -> Schema:
    keywords: Schema = {}
    if rules.HasField("min_items"):
        keywords["minItems"] = rules.min_items
    if rules.HasField("max_items"):
        keywords["maxItems"] = rules.max_items
    if rules.unique:
        keywords["uniqueItems"] = True
    return keywords


def _of_map(rules: validate_pb2.MapRules) -> Schema:
    keywords: Schema = {}
    if rules.HasField("min_pairs"):
        keywords["minProperties"] = rules.min_pairs
    if rules.HasField("max_pairs"):
        keywords["maxProperties"] = rules.max_pairs
    if names := _keywords(rules.keys):
        keywords["propertyNames"] = names
    return keywords
