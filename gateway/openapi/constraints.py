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
_NUMERIC = ("float", "double", "int32", "uint32", "sint32", "fixed32", "sfixed32")
"""Kinds that JSON prints as numbers; those of 64 bits are strings there, which have no minimum."""
_WORDS: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(_NUMERIC, _NUMBERS),
    "string": {"const": "const", "min_len": "minLength", "max_len": "maxLength", "pattern": "pattern"},
    "repeated": {"min_items": "minItems", "max_items": "maxItems", "unique": "uniqueItems"},
    "map": {"min_pairs": "minProperties", "max_pairs": "maxProperties"},
}
"""Kind of field -> rule -> the keyword with the same value."""


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
    if kind is None or kind not in _WORDS:
        return {}
    found = getattr(rules, kind)
    keywords: Schema = {word: getattr(found, rule) for rule, word in _WORDS[kind].items() if found.HasField(rule)}
    if kind == "map" and (names := _keywords(found.keys)):
        keywords["propertyNames"] = names
    if allowed := list(getattr(found, "in", ())):
        keywords["enum"] = allowed
    if refused := list(getattr(found, "not_in", ())):
        keywords["not"] = {"enum": refused}
    return keywords
